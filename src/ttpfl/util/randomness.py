"""Random numbers that depend on a seed alone, and leave no traces."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader


@contextmanager
def seeded(*seed: int, client: Any = None) -> Iterator[None]:
    """While open, whatever is drawn from Python's, numpy's or torch's generator follows from `seed`.

    The same holds for the generators that `client` brings along, if it is a DataLoader.

    >>> with seeded(3, 1):
    ...     a = torch.rand(1), random.random()
    >>> with seeded(3, 1):
    ...     b = torch.rand(1), random.random()
    >>> a == b
    True
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    own = [(generator, generator.get_state()) for generator in generators_of(client)]
    number = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    # `torch.manual_seed` would seed other devices for good, and takes a picture of the stack for them.
    for generator in (torch.default_generator, *(generator for generator, _ in own)):
        generator.manual_seed(number)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        for generator, state in own:
            generator.set_state(state)


def generators_of(client: Any) -> Iterator[torch.Generator]:
    """Those of a DataLoader and of its samplers, each once; other clients bring none along.

    >>> own = torch.Generator()
    >>> [one is own for one in generators_of(DataLoader([1, 2], shuffle=True, generator=own))]
    [True]
    """
    if isinstance(client, DataLoader):
        inner = getattr(client.batch_sampler, "sampler", None)
        holders = (client, client.sampler, client.batch_sampler, inner)
        found = (getattr(holder, "generator", None) for holder in holders)
        yield from {id(one): one for one in found if isinstance(one, torch.Generator)}.values()


@contextmanager
def same_order(client: Any, seed: int) -> Iterator[None]:
    """A DataLoader draws random numbers: always the same ones, and the generators stay as they were."""
    draws = isinstance(client, DataLoader)
    generators = [torch.default_generator, *generators_of(client)] if draws else []
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
