"""Random numbers that depend on a seed alone, and leave no traces."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """While open, whatever is drawn from Python's, numpy's or torch's generator follows from `seed`.

    >>> with seeded(3, 1):
    ...     a = torch.rand(1), random.random()
    >>> with seeded(3, 1):
    ...     b = torch.rand(1), random.random()
    >>> a == b
    True
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    number = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    torch.manual_seed(number)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
