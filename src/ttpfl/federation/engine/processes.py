"""The local engine: worker processes that share the clients' data, one thread each."""

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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from ttpfl.federation.common.jobs import ClientResult, Job, MakeWork, Work
from ttpfl.federation.common.state import Report
from ttpfl.federation.engine.in_process import attempt
from ttpfl.util.allocator import keep_freed_memory
from ttpfl.util.die_with_parent import die_with_parent
from ttpfl.util.stopped_processes import StoppedProcesses

log = logging.getLogger("ttpfl")

LOOK_EVERY = 1.0  # seconds
ROOM = 32 * 2**20  # bytes, for answers that wait for an earlier one


class Processes:
    """`workers` processes. They are forked: all that the work refers to is there without copying.

    A worker that dies, or that somebody stopped (SIGSTOP) for too long, is replaced, and its client's job is
    done again. If that ends in the same way, the client has failed, like one that raises an error.

    Args:
        make_work: called once in every worker.
        length: of the vectors that clients get and give.
        workers: how many processes.
        sticky: whether a client goes to the same worker in every round, if possible; for work that keeps
            something per client. Needs room for all answers of a round.
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
        """The answers of all jobs, in their order, as soon as they are complete."""
        self._message.copy_(message)
        self._ensure(len(jobs))
        round_ = _Round(jobs, len(self._slots), self._count if self._sticky else None)
        try:
            while (position := round_.next_to_hand_out) < len(jobs):
                self._feed(round_)
                if position in round_.answered:
                    slot, report, failure = round_.answered.pop(position)
                    # Workers are busy with later clients while the caller looks at this one.
                    yield ClientResult(jobs[position], self._slots[slot], report, failure)
                    round_.hand_out(slot)
                else:
                    self._listen(round_)
        except BaseException:  # also when the caller does not want the other answers any more
            self.close()
            raise

    def close(self) -> None:
        """End the workers: what they are busy with is of no use any more."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.connection.close()
            worker.process.kill()
        for worker in workers:
            worker.process.join()

    def _ensure(self, jobs: int) -> None:
        """Slots for answers, then workers, which inherit the slots when they are forked."""
        # So many that the others go on while one takes long. Memory is only taken by those that are in use.
        size = max(self._length * self._dtype.itemsize, mmap.PAGESIZE)
        needed = jobs if self._sticky else min(jobs, max(2 * self._count + 1, ROOM // size))
        if needed > len(self._slots):
            self.close()
            self._slots += [shared(self._length, self._dtype) for _ in range(needed - len(self._slots))]
        while len(self._workers) < self._count:
            self._workers.append(self._start())

    def _start(self) -> "_Worker":
        ours, theirs = multiprocessing.Pipe()
        # What is open for other workers must not be in this one, or they would never see it closed.
        others = [ours, *(worker.connection for worker in self._workers)]
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, others, self._make_work, self._message, self._slots), daemon=True
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _feed(self, round_: "_Round") -> None:
        """Give every idle worker a job."""
        for number, worker in enumerate(self._workers):
            if worker.job is None and (task := round_.take(number)) is not None:
                worker.job = task
                self._send(worker, round_.jobs[task[0]], task[1])

    def _send(self, worker: "_Worker", job: Job, slot: int) -> None:
        if job.start is not None:
            self._slots[slot][: len(job.start)] = job.start
        request = {"client": job.client, "name": job.name, "round": job.round, "judge": job.judge}
        with suppress(OSError):  # it died before it got the job: `_listen` will see that
            worker.connection.send_bytes(json.dumps({**request, "slot": slot}).encode())

    def _listen(self, round_: "_Round") -> None:
        """Wait until a worker answers or dies."""
        busy = [worker for worker in self._workers if worker.job is not None]
        # What a worker has started, such as a DataLoader's processes, has inherited its ends of both: while
        # that lives, nothing tells of the worker's death. So look from time to time.
        wait([item for worker in busy for item in (worker.connection, worker.process.sentinel)], LOOK_EVERY)
        for worker in busy:
            try:
                if not worker.connection.poll():
                    if self._overdue(worker, round_):
                        worker.process.kill()
                        self._replace(worker, round_)
                    elif not worker.process.is_alive():
                        self._replace(worker, round_)
                    continue
                report, failure = json.loads(worker.connection.recv_bytes())
            except (EOFError, OSError):
                self._replace(worker, round_)
                continue
            assert worker.job is not None
            position, slot = worker.job
            worker.job = None
            round_.answered[position] = (slot, report, failure)

    def _overdue(self, worker: "_Worker", round_: "_Round") -> bool:
        assert worker.job is not None
        job = round_.jobs[worker.job[0]]
        return self._stopped.overdue(worker.process.pid, f"at client {job.name!r} in round {job.round}")

    def _replace(self, worker: "_Worker", round_: "_Round") -> None:
        """A fresh worker in place of a dead one: it tries the same job once more, but not a third time."""
        assert worker.job is not None
        position, slot = worker.job
        job = round_.jobs[position]
        worker.process.join()
        worker.connection.close()
        number = self._workers.index(worker)
        del self._workers[number]
        fresh = self._start()
        self._workers.insert(number, fresh)
        cause = _cause(worker.process.exitcode)
        if position in round_.died:
            failure = f"it ended its worker process twice ({cause}): it may need too much memory"
            round_.answered[position] = (slot, {}, failure)
            return
        round_.died.add(position)
        log.warning(
            "a worker ended (%s) at client %r in round %d: it is replaced, and the client is run again",
            cause,
            job.name,
            job.round,
        )
        fresh.job = (position, slot)
        self._send(fresh, job, slot)


class _Worker:
    def __init__(self, process: BaseProcess, connection: "Connection[bytes, bytes]") -> None:
        self.process, self.connection = process, connection
        self.job: tuple[int, int] | None = None
        """Position of the job in the round, and the slot for its answer."""


class _Round:
    """Which jobs are waiting, and which answers are still to be handed out."""

    def __init__(self, jobs: Sequence[Job], slots: int, sticky_workers: int | None) -> None:
        self.jobs = jobs
        self.free = list(range(slots))
        self.answered: dict[int, tuple[int, Report, str | None]] = {}
        self.died: set[int] = set()
        self.next_to_hand_out = 0
        self._waiting: list[deque[int]] = [deque() for _ in range(sticky_workers or 1)]
        for position, job in enumerate(jobs):
            self._waiting[job.client % len(self._waiting)].append(position)

    def take(self, worker: int) -> tuple[int, int] | None:
        """The next job for a worker and a slot: of its own clients first, else of the longest queue."""
        own = self._waiting[worker % len(self._waiting)]
        queue = own or max(self._waiting, key=len)
        # The slot that was used last, whose memory is there already.
        return (queue.popleft(), self.free.pop()) if queue and self.free else None

    def hand_out(self, slot: int) -> None:
        """The first answer was used: its slot is free."""
        self.free.append(slot)
        self.next_to_hand_out += 1


def shared(length: int, dtype: torch.dtype) -> Tensor:
    """A tensor in memory that forked processes have in common; gone when nobody has it any more.

    >>> shared(2, torch.float32)
    tensor([0., 0.])
    """
    size = max(1, length) * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype, count=max(1, length))[:length]


def _serve(
    connection: Any, others: Sequence[Any], make_work: MakeWork, message: Tensor, slots: Sequence[Tensor]
) -> None:
    """A worker's life: work until nobody asks any more."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    for other in others:
        other.close()
    # A progress display may have put itself before these; its lock may be held by a thread that is not here.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    multiprocessing.current_process().daemon = False  # clients may be DataLoaders with workers of their own
    torch.set_num_threads(1)
    keep_freed_memory()
    work = _made(make_work)
    try:
        while True:
            request = json.loads(connection.recv_bytes())
            answer = slots[request.pop("slot")]
            result = attempt(work, Job(**request), message, answer)
            connection.send_bytes(json.dumps(result).encode())
    except (EOFError, OSError):
        os._exit(0)  # the main process is gone, or does not need this one any more


def _made(make_work: MakeWork) -> Work:
    """The work; if it cannot be made, one that says so to everybody who asks."""
    try:
        return make_work()
    except Exception as error:
        reason = error

        def fail(job: Job, message: Tensor, answer: Tensor) -> Report:
            raise reason

        return fail


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
