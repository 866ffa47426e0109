"""The local engine: worker processes with one thread each that share the clients' data."""

import json
import logging
import mmap
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from ttpfl.federation.common.jobs import ClientResult, Job, MakeWork
from ttpfl.federation.common.state import Report
from ttpfl.federation.engine.in_process import attempt
from ttpfl.util.allocator import keep_freed_memory
from ttpfl.util.die_with_parent import die_with_parent
from ttpfl.util.stopped_processes import StoppedProcesses

log = logging.getLogger("ttpfl")

LOOK_EVERY = 1.0  # seconds
ROOM = 32 * 2**20  # bytes, for results that wait for an earlier one


class Processes:
    """Runs clients in `workers` forked processes, which share the caller's memory without copying.

    A worker that dies, or is stopped (SIGSTOP) for too long, is replaced, and its client is run again. If
    the second attempt ends in the same way, the client has failed, as if it had raised an error.

    If `sticky`, a client runs in the same worker in every round where possible, for work that keeps something
    per client. This needs memory for all results of a round.
    """

    def __init__(
        self,
        make_work: MakeWork,
        length: int,
        workers: int,
        sticky: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._make_work, self._length, self._dtype, self._sticky = make_work, length, dtype, sticky
        self._message = shared(length, dtype)
        self._slots: list[Tensor] = []
        self._count = workers
        self._workers: list[_Worker] = []
        self._stopped = StoppedProcesses()

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """Yield the results of all jobs, in their order, as soon as they are complete."""
        self._message.copy_(message)
        self._ensure(len(jobs))
        round_ = _Round(jobs, len(self._slots), self._count if self._sticky else None)
        try:
            while (position := round_.next_to_yield) < len(jobs):
                self._feed(round_)
                if position in round_.results:
                    slot, report, failure = round_.results.pop(position)
                    # Workers run later clients while the caller processes this result.
                    yield ClientResult(jobs[position], self._slots[slot], report, failure)
                    round_.release(slot)
                else:
                    self._listen(round_)
        except BaseException:  # also if the caller does not consume all results
            self.close()
            raise

    def close(self) -> None:
        """Kill the workers; their current jobs are no longer needed."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.connection.close()
            worker.process.kill()
        for worker in workers:
            worker.process.join()

    def _ensure(self, jobs: int) -> None:
        """Create slots for results, then workers, which inherit the slots when they are forked."""
        # Enough slots for the other workers to continue while one is slow. Unused ones take no memory.
        size = max(self._length * self._dtype.itemsize, mmap.PAGESIZE)
        needed = jobs if self._sticky else min(jobs, max(2 * self._count + 1, ROOM // size))
        if needed > len(self._slots):
            self.close()
            self._slots += [shared(self._length, self._dtype) for _ in range(needed - len(self._slots))]
        while len(self._workers) < self._count:
            self._workers.append(self._start())

    def _start(self) -> "_Worker":
        ours, theirs = multiprocessing.Pipe()
        # A copy of another worker's connection in this one would keep it open.
        inherited = [ours, *(worker.connection for worker in self._workers)]
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, inherited, self._make_work, self._message, self._slots), daemon=True
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _feed(self, round_: "_Round") -> None:
        """Give every idle worker a job."""
        for number, worker in enumerate(self._workers):
            if worker.task is None and (task := round_.take(number)) is not None:
                self._send(worker, round_.jobs[task[0]], task)

    def _send(self, worker: "_Worker", job: Job, task: tuple[int, int]) -> None:
        worker.task, slot = task, task[1]
        if job.start is not None:
            self._slots[slot][: len(job.start)] = job.start
        request = {"client": job.client, "name": job.name, "round": job.round, "validate": job.validate}
        with suppress(OSError):  # the worker died before it received the job: `_listen` will notice
            worker.connection.send_bytes(json.dumps({**request, "slot": slot}).encode())

    def _listen(self, round_: "_Round") -> None:
        """Wait until a worker returns a result or dies."""
        busy = [worker for worker in self._workers if worker.task is not None]
        # Processes started by a worker, such as those of a DataLoader, inherit its connection and sentinel.
        # While they live, the worker's death goes unnoticed. So check from time to time.
        wait([item for worker in busy for item in (worker.connection, worker.process.sentinel)], LOOK_EVERY)
        for worker in busy:
            assert worker.task is not None
            position, slot = worker.task
            try:
                if worker.connection.poll():
                    report, failure = json.loads(worker.connection.recv_bytes())
                    worker.task = None
                    round_.results[position] = (slot, report, failure)
                    continue
            except (EOFError, OSError):
                self._replace(worker, round_)
                continue
            job = round_.jobs[position]
            if self._stopped.overdue(worker.process.pid, f"at client {job.name!r} in round {job.round}"):
                worker.process.kill()
                self._replace(worker, round_)
            elif not worker.process.is_alive():
                self._replace(worker, round_)

    def _replace(self, worker: "_Worker", round_: "_Round") -> None:
        """Replace a dead worker; the new one tries the same job once more, but not a third time."""
        assert worker.task is not None
        position, slot = worker.task
        job = round_.jobs[position]
        worker.process.join()
        worker.connection.close()
        replacement = self._workers[self._workers.index(worker)] = self._start()
        cause = _cause(worker.process.exitcode)
        if position in round_.died:
            failure = f"its worker process died twice ({cause}): it may need too much memory"
            round_.results[position] = (slot, {}, failure)
            return
        round_.died.add(position)
        where = f"at client {job.name!r} in round {job.round}"
        log.warning("a worker died (%s) %s: it is replaced, and the client is run again", cause, where)
        self._send(replacement, job, (position, slot))


class _Worker:
    def __init__(self, process: BaseProcess, connection: "Connection[bytes, bytes]") -> None:
        self.process, self.connection = process, connection
        self.task: tuple[int, int] | None = None
        """Position of the current job in the round, and the slot for its result."""


class _Round:
    """Jobs that are waiting, and results that have not been yielded yet."""

    def __init__(self, jobs: Sequence[Job], slots: int, sticky_workers: int | None) -> None:
        self.jobs = jobs
        self.free = list(range(slots))
        self.results: dict[int, tuple[int, Report, str | None]] = {}
        self.died: set[int] = set()
        self.next_to_yield = 0
        self._waiting: list[deque[int]] = [deque() for _ in range(sticky_workers or 1)]
        for position, job in enumerate(jobs):
            self._waiting[job.client % len(self._waiting)].append(position)

    def take(self, worker: int) -> tuple[int, int] | None:
        """The next job for a worker, and a slot: one of its clients first, otherwise of the longest queue."""
        queue = self._waiting[worker % len(self._waiting)] or max(self._waiting, key=len)
        # The slot that was used last, whose memory is already allocated.
        return (queue.popleft(), self.free.pop()) if queue and self.free else None

    def release(self, slot: int) -> None:
        """Free the slot of the result that was yielded last."""
        self.free.append(slot)
        self.next_to_yield += 1


def shared(length: int, dtype: torch.dtype) -> Tensor:
    """A tensor in memory that forked processes share; freed when no process uses it any more.

    >>> shared(2, torch.float32)
    tensor([0., 0.])
    """
    size = max(1, length) * dtype.itemsize
    return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype, count=max(1, length))[:length]


def _serve(
    connection: Any, inherited: Sequence[Any], make_work: MakeWork, message: Tensor, slots: Sequence[Tensor]
) -> None:
    """Run a worker: process jobs until the connection is closed."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    for other in inherited:
        other.close()
    # A progress display may have replaced these, with a lock held by a thread that does not exist here.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    multiprocessing.current_process().daemon = False  # clients may be DataLoaders with their own workers
    torch.set_num_threads(1)
    keep_freed_memory()
    work = cache(make_work)  # called by the first job, so that an error is a failure of the client
    try:
        while True:
            request = json.loads(connection.recv_bytes())
            out = slots[request.pop("slot")]
            result = attempt(lambda *task: work()(*task), Job(**request), message, out)
            connection.send_bytes(json.dumps(result).encode())
    except (EOFError, OSError):
        os._exit(0)  # the main process is gone or has closed the connection


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
