"""Random numbers that depend only on a seed, without side effects on the generators."""

import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader


@contextmanager
def seeded(*seed: int, client: Any = None) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch while open, and restore them afterwards.

    The same holds for the generators of `client`, if it is a DataLoader.

    >>> with seeded(3, 1):
    ...     a = torch.rand(1), random.random()
    >>> with seeded(3, 1):
    ...     b = torch.rand(1), random.random()
    >>> a == b
    True
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    number = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    try:
        # `torch.manual_seed` would seed other devices permanently, and capture the stack for them.
        with _seeded_generators((torch.default_generator, *generators_of(client)), number):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def same_order(client: Any, seed: int) -> AbstractContextManager[None]:
    """Seed the generators that a DataLoader uses while open, so that its order is always the same."""
    draws = isinstance(client, DataLoader)
    return _seeded_generators((torch.default_generator, *generators_of(client)) if draws else (), seed)


@contextmanager
def _seeded_generators(generators: Iterable[torch.Generator], seed: int) -> Iterator[None]:
    states = [(generator, generator.get_state()) for generator in generators]
    try:
        for generator, _ in states:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def generators_of(client: Any) -> Iterator[torch.Generator]:
    """Yield the generators of a DataLoader and its samplers, each once; other clients have none.

    >>> generator = torch.Generator()
    >>> list(generators_of(DataLoader([1, 2], shuffle=True, generator=generator))) == [generator]
    True
    """
    if isinstance(client, DataLoader):
        inner = getattr(client.batch_sampler, "sampler", None)
        holders = (client, client.sampler, client.batch_sampler, inner)
        generators = (getattr(holder, "generator", None) for holder in holders)
        yield from {id(g): g for g in generators if isinstance(g, torch.Generator)}.values()
