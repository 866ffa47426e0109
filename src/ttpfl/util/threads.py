"""How many threads torch computes with."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


def single_thread() -> AbstractContextManager[None]:
    """One thread while open: the number of threads decides about the order of sums inside an operation.

    >>> with single_thread():
    ...     torch.get_num_threads()
    1
    """
    return threads(1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads while open."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
