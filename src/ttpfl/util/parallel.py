"""Parallel work in forked processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ttpfl.errors import DataError
from ttpfl.util.allocator import keep_freed_memory
from ttpfl.util.stopped_processes import StoppedProcesses

Result = TypeVar("Result")
LOOK_EVERY = 1.0  # seconds
Progress = Callable[[int, int], object]

_work: Callable[[int], Any] | None = None


def cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[int], Result], count: int, workers: int) -> Iterator[Result]:
    """Yield work(0), ..., work(count - 1) in order, each as soon as it is available.

    They are computed by `workers` processes if the system can fork.

    >>> list(in_order(lambda number: number**2, 4, workers=2))
    [0, 1, 4, 9]
    """
    if workers < 2 or count < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(work, range(count))
        return
    context, others = multiprocessing.get_context("fork"), multiprocessing.active_children()
    end, hold = context.Pipe(duplex=False)
    # Forked processes share `work`, and everything it refers to, without copying.
    with end, hold, ProcessPoolExecutor(workers, context, _take, (work, end, hold)) as pool:
        size = max(1, count // (16 * workers))
        chunks = [range(start, min(start + size, count)) for start in range(0, count, size)]
        waiting = deque(pool.submit(_do, chunk) for chunk in chunks)
        try:
            while waiting:
                yield from _result(waiting.popleft(), others)
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process was killed or stopped, perhaps because memory ran out: try fewer workers"
            ) from error
        except BaseException:  # also Ctrl-C: ends the workers without waiting for them
            hold.close()
            raise


def _result(task: "Future[list[Result]]", others: Sequence[BaseProcess]) -> list[Result]:
    """Wait for a task. If a worker (any child not in `others`) stays stopped, kill all of them."""
    stopped = StoppedProcesses()
    while True:
        try:
            return task.result(LOOK_EVERY)
        except TimeoutError:
            if task.done():  # raised by the work itself
                raise
        workers = [process for process in multiprocessing.active_children() if process not in others]
        if any(stopped.overdue(worker.pid, "during its part of the work") for worker in workers):
            for worker in workers:  # the pool breaks, and waits for all of them to end
                worker.kill()


def in_parallel(
    work: Callable[[int], Result], count: int, workers: int, progress: Progress | None = None
) -> list[Result]:
    """Return [work(0), ..., work(count - 1)]; `progress` is called with the numbers done and in total."""
    collected: list[Result] = []
    for result in in_order(work, count, workers):
        collected.append(result)
        if progress is not None:
            progress(len(collected), count)
    return collected


def _take(work: Callable[[int], Any], end: Connection, hold: Connection) -> None:
    global _work
    _work = work
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    hold.close()  # only the main process keeps it open
    threading.Thread(target=_exit_with_parent, args=(end,), daemon=True).start()


def _exit_with_parent(end: Connection) -> None:
    """Exit when the main process closes the other end, or is killed."""
    end.poll(None)
    os._exit(1)


def _do(numbers: Iterable[int]) -> list[Any]:
    assert _work is not None
    return [_work(number) for number in numbers]
