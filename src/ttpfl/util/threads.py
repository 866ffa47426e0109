"""Number of threads that torch uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads while open.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


single_thread = partial(threads, 1)
"""Use one thread while open: the number of threads affects the order of sums in an operation."""
