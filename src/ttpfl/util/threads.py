"""Number of threads that torch uses."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


def single_thread() -> AbstractContextManager[None]:
    """Use one thread while open: the number of threads affects the order of sums in an operation.

    >>> with single_thread():
    ...     torch.get_num_threads()
    1
    """
    return threads(1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads while open."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
