"""Which images belong to which client: dealt out once, or drawn for each client when it is asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.partition import Ids, Partition, relative_sizes, whole
from ttpfl.errors import DataError

SMALLEST = 2  # images of a client: one to train with, one to validate with


@dataclass(frozen=True, eq=False)
class Pool:
    """Ids of images, those of each class together.

    >>> pool = Pool.of(np.array([1, 0, 1]), classes=2)
    >>> pool.ids, pool.lengths, pool.starts
    (array([1, 0, 2]), array([1, 2]), array([0, 1]))
    """

    ids: Ids
    lengths: NDArray[np.int64]
    """Images of each class."""

    @classmethod
    def of(cls, labels: NDArray[np.int64], classes: int, ids: Ids | None = None) -> "Pool":
        """A pool of the images `ids` (all, if None), given the labels of all images."""
        ids = np.arange(len(labels)) if ids is None else ids
        order = np.argsort(labels[ids], kind="stable")
        return cls(ids[order], np.bincount(labels[ids], minlength=classes))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each class begins in `ids`."""
        return self.lengths.cumsum() - self.lengths

    def by_class(self) -> list[Ids]:
        """The ids of each class."""
        return np.split(self.ids, self.starts[1:])


class Division(Protocol):
    """Clients 0 to len - 1, each with the ids of its images, in the client's own order."""

    def __len__(self) -> int: ...
    def __getitem__(self, client: int) -> Ids: ...

    @property
    def reach(self) -> Ids:
        """All ids that any of the clients has, or may draw."""


@dataclass(frozen=True, eq=False)
class Dealt:
    """All clients' ids in one array, which is no longer than the images; no id is in it twice."""

    ids: Ids
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, client: int) -> Ids:
        return self.ids[self.ends[client - 1] if client else 0 : self.ends[client]]

    @property
    def reach(self) -> Ids:
        """All ids, those of every client together."""
        return self.ids


@dataclass(frozen=True, eq=False)
class Drawn:
    """Each client draws its ids with its own generator: nothing is kept, however many clients there are.

    A client never has an image twice, but different clients may have the same one. A client that wants more
    images of a class than there are gets them all.
    """

    pool: Pool
    clients: int
    partition: Partition
    samples: int
    skew: float
    seed: tuple[int, ...]

    def __len__(self) -> int:
        return self.clients

    @property
    def reach(self) -> Ids:
        """All ids that there are to draw."""
        return self.pool.ids

    def __getitem__(self, client: int) -> Ids:
        random = np.random.default_rng((*self.seed, client))
        size = _samples(self.samples, relative_sizes(1, self.skew, random))[0]
        counts = whole(self.partition.weights(1, len(self.pool.lengths), random)[0], int(size), random)
        # A client that is much larger than usual, or has little else, may want more than there is.
        return _distinct(self.pool, np.minimum(counts, self.pool.lengths), random)


def deal(
    pool: Pool,
    clients: int,
    partition: Partition,
    samples: int | None,
    skew: float,
    random: np.random.Generator,
) -> Dealt:
    """Deal out the images in `pool`: `samples` for each client, or all there are if None.

    >>> from ttpfl.data.partition import Stratified
    >>> pool = Pool.of(np.array([0, 0, 1, 1, 0, 0, 1, 1]), classes=2)
    >>> dealt = deal(pool, 2, Stratified(), None, 0.0, np.random.default_rng(0))
    >>> [sorted(dealt[client].tolist()) for client in range(2)]
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    weights = partition.weights(clients, len(pool.lengths), random)
    sizes = relative_sizes(clients, skew, random)
    if samples is None:
        columns = zip((weights * sizes[:, None]).T, pool.lengths, strict=True)
        counts = np.stack([whole(column, int(total), random) for column, total in columns], axis=1)
    else:
        rows = zip(weights, _samples(samples, sizes), strict=True)
        counts = np.stack([whole(row, int(total), random) for row, total in rows])
    _check(counts, pool.lengths, partition)
    pieces: list[list[Ids]] = [[] for _ in counts]
    for ids, column in zip(pool.by_class(), counts.T, strict=True):
        ends = column.cumsum()
        for client, piece in enumerate(np.split(random.permutation(ids)[: ends[-1]], ends[:-1])):
            pieces[client].append(piece)
    own = [random.permutation(np.concatenate(piece)) for piece in pieces]
    ids = np.concatenate(own)
    ids.setflags(write=False)  # clients hand out parts of it
    return Dealt(ids, counts.sum(1).cumsum())


def draw(
    pool: Pool, clients: int, partition: Partition, samples: int, skew: float, seed: tuple[int, ...]
) -> Drawn:
    """Clients that draw `samples` images from `pool`, checked to be able to.

    >>> from ttpfl.data.partition import Step
    >>> pool = Pool.of(np.arange(1000) % 10, classes=10)
    >>> drawn = draw(pool, 10**6, Step(majors=1, ratio=10), 19, 0.0, seed=(0,))
    >>> np.sort(np.bincount(drawn[123456] % 10))
    array([ 1,  1,  1,  1,  1,  1,  1,  1,  1, 10])
    """
    random = np.random.default_rng(seed)
    usual = whole(partition.weights(1, len(pool.lengths), random)[0], samples, random)
    if partition.every_class and not usual.all():
        raise DataError(
            f"too few samples: {partition} leaves a client with {samples} samples without any of some "
            f"class: ask for more samples or a smaller ratio"
        )
    for c in np.flatnonzero(usual > pool.lengths):
        raise DataError(
            f"too few images: a client needs {usual[c]} different ones{_of(int(c), partition)}, but there "
            f"are {pool.lengths[c]} to draw from: ask for fewer samples"
        )
    return Drawn(pool, clients, partition, samples, skew, seed)


def _samples(samples: int, sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.maximum(SMALLEST, np.rint(samples * sizes)).astype(np.int64)


def _check(counts: NDArray[np.int64], available: NDArray[np.int64], partition: Partition) -> None:
    clients, needed = len(counts), counts.sum(0)
    short = np.flatnonzero(needed > available)
    if len(short):
        each = ", ".join(f"{needed[c]}{_of(int(c), partition)} ({available[c]} are there)" for c in short[:5])
        raise DataError(
            f"too few images: {clients} clients with {counts.sum() / clients:.0f} samples each need {each}: "
            "ask for fewer clients or samples, leave samples out to deal out what is there, or draw with "
            "replacement"
        )
    if partition.every_class and not counts.all():
        client, label = np.argwhere(counts == 0)[0]
        raise DataError(
            f"too few images: {partition} over {clients} clients leaves client {client} without any of class "
            f"{label}, of which there are {available[label]}: ask for fewer clients, a smaller ratio, or the "
            "partition dirichlet or iid"
        )
    smallest = int(counts.sum(1).min())
    if smallest < SMALLEST:
        raise DataError(
            f"too few images: {partition} over {clients} clients leaves one with {smallest} of the "
            f"{available.sum()} images, but {SMALLEST} is the least: ask for fewer or less uneven clients"
        )


def _of(label: int, partition: Partition) -> str:
    return f" of class {label}" if partition.by_class else ""


def _distinct(pool: Pool, counts: NDArray[np.int64], random: np.random.Generator) -> Ids:
    """So many random ids of each class, none twice, in random order.

    All are drawn at once, and those that came up before are drawn again: much faster than a choice
    without replacement from each class, as long as few of many are drawn. Else it is that choice.
    """
    label = random.permutation(np.repeat(np.arange(len(counts)), counts))
    start, length = pool.starts[label], pool.lengths[label]
    chosen = start + (random.random(len(label)) * length).astype(np.int64)
    for c in np.flatnonzero(2 * counts > pool.lengths):
        chosen[label == c] = pool.starts[c] + random.permutation(pool.lengths[c])[: counts[c]]
    while len(again := _repeated(chosen)):
        chosen[again] = start[again] + (random.random(len(again)) * length[again]).astype(np.int64)
    return np.asarray(pool.ids[chosen])


def _repeated(values: Ids) -> Ids:
    """Where the values are that also stand further in front."""
    order = np.argsort(values, kind="stable")
    return np.asarray(order[1:][values[order[1:]] == values[order[:-1]]])
