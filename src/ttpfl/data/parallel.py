"""Plain work on all cores."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from ttpfl.allocator import keep_freed_memory

Result = TypeVar("Result")
Progress = Callable[[int, int], object]

_work: Callable[[int], Any] | None = None


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[int], Result], count: int, workers: int) -> Iterator[Result]:
    """work(0), ..., work(count - 1), each as soon as it and those before are there.

    They are computed by `workers` processes where the system can fork them.

    >>> list(in_order(lambda number: number**2, 4, workers=2))
    [0, 1, 4, 9]
    """
    if workers < 2 or count < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(work, range(count))
        return
    # Forked processes have `work`, and all it refers to, without any copying.
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), initializer=_take, initargs=(work,)
    ) as pool:
        yield from pool.map(_do, range(count), chunksize=max(1, count // (16 * workers)))


def in_parallel(
    work: Callable[[int], Result], count: int, workers: int, progress: Progress | None = None
) -> list[Result]:
    """[work(0), ..., work(count - 1)]; `progress` is told how many are done, and how many there are."""
    collected: list[Result] = []
    for result in in_order(work, count, workers):
        collected.append(result)
        if progress is not None:
            progress(len(collected), count)
    return collected


def _take(work: Callable[[int], Any]) -> None:
    global _work
    _work = work
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without it, workers would wait for more work for ever if their parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(number: int) -> Any:
    assert _work is not None
    return _work(number)
