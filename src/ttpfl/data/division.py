"""Which client has which images: dealt out once, or drawn for each client on access."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttpfl.data.partition import Ids, Partition, apportion, relative_sizes
from ttpfl.errors import DataError

SMALLEST = 2  # images of a client: one for training, one for validation


@dataclass(frozen=True, eq=False)
class Pool:
    """Ids of images, grouped by class.

    >>> pool = Pool.of(np.array([1, 0, 1]), classes=2)
    >>> pool.ids, pool.lengths, pool.starts
    (array([1, 0, 2]), array([1, 2]), array([0, 1]))
    """

    ids: Ids
    lengths: NDArray[np.int64]
    """Images of each class."""

    @classmethod
    def of(cls, labels: NDArray[np.int64], classes: int, ids: Ids | None = None) -> "Pool":
        """A pool of the images `ids` (by default all); `labels` are those of all images."""
        ids = np.arange(len(labels)) if ids is None else ids
        order = np.argsort(labels[ids], kind="stable")
        return cls(ids[order], np.bincount(labels[ids], minlength=classes))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each class starts in `ids`."""
        return self.lengths.cumsum() - self.lengths

    def by_class(self) -> list[Ids]:
        """The ids of each class."""
        return np.split(self.ids, self.starts[1:])


@dataclass(frozen=True, eq=False)
class Dealt:
    """All clients' ids in one array, without duplicates."""

    ids: Ids
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, client: int) -> Ids:
        return self.ids[self.ends[client - 1] if client else 0 : self.ends[client]]

    @property
    def reach(self) -> Ids:
        """All ids that any client has."""
        return self.ids


@dataclass(frozen=True, eq=False)
class Drawn:
    """Each client draws its ids with its own generator, so memory does not grow with the number of clients.

    A client never has an image twice, but clients can share images. A client that needs more images of a
    class than exist gets all of them.
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
        """All ids that any client can draw."""
        return self.pool.ids

    def __getitem__(self, client: int) -> Ids:
        random = np.random.default_rng((*self.seed, client))
        size = _samples(self.samples, relative_sizes(1, self.skew, random))[0]
        counts = apportion(self.partition.weights(1, len(self.pool.lengths), random)[0], int(size), random)
        return _distinct(self.pool, np.minimum(counts, self.pool.lengths), random)


Division = Dealt | Drawn
"""The ids of each client's images, in the client's order; clients are 0 to len - 1."""


def deal(
    pool: Pool, clients: int, partition: Partition, samples: int | None, skew: float, random: Generator
) -> Dealt:
    """Deal out the images in `pool`: `samples` to each client, or all of them if None.

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
        counts = np.stack([apportion(column, int(total), random) for column, total in columns], axis=1)
    else:
        rows = zip(weights, _samples(samples, sizes), strict=True)
        counts = np.stack([apportion(row, int(total), random) for row, total in rows])
    _check(counts, pool.lengths, partition)
    pieces: list[list[Ids]] = [[] for _ in counts]
    for ids, column in zip(pool.by_class(), counts.T, strict=True):
        ends = column.cumsum()
        for client, piece in enumerate(np.split(random.permutation(ids)[: ends[-1]], ends[:-1])):
            pieces[client].append(piece)
    ids = np.concatenate([random.permutation(np.concatenate(piece)) for piece in pieces])
    ids.setflags(write=False)  # clients share slices of it
    return Dealt(ids, counts.sum(1).cumsum())


def draw(
    pool: Pool, clients: int, partition: Partition, samples: int, skew: float, seed: tuple[int, ...]
) -> Drawn:
    """Clients that draw `samples` images from `pool`; raise a DataError if they cannot.

    >>> from ttpfl.data.partition import Step
    >>> pool = Pool.of(np.arange(1000) % 10, classes=10)
    >>> drawn = draw(pool, 10**6, Step(majors=1, ratio=10), 19, 0.0, seed=(0,))
    >>> np.sort(np.bincount(drawn[123456] % 10))
    array([ 1,  1,  1,  1,  1,  1,  1,  1,  1, 10])
    """
    random = np.random.default_rng(seed)
    usual = apportion(partition.weights(1, len(pool.lengths), random)[0], samples, random)
    if partition.every_class and not usual.all():
        raise DataError(
            f"too few samples: with {partition}, a client with {samples} samples has none of some class: "
            "increase samples, or decrease ratio"
        )
    for c in np.flatnonzero(usual > pool.lengths):
        raise DataError(
            f"too few images: a client needs {usual[c]} different ones{_of(int(c), partition)}, but only "
            f"{pool.lengths[c]} are available: decrease samples"
        )
    return Drawn(pool, clients, partition, samples, skew, seed)


def _samples(samples: int, sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.maximum(SMALLEST, np.rint(samples * sizes)).astype(np.int64)


def _check(counts: NDArray[np.int64], available: NDArray[np.int64], partition: Partition) -> None:
    clients, needed = len(counts), counts.sum(0)
    short = np.flatnonzero(needed > available)
    if len(short):
        each = ", ".join(f"{needed[c]}{_of(int(c), partition)} ({available[c]} available)" for c in short[:5])
        raise DataError(
            f"too few images: {clients} clients with {counts.sum() / clients:.0f} samples each need {each}: "
            "use fewer clients or samples, omit samples to deal out all images, or set replacement"
        )
    if partition.every_class and not counts.all():
        client, label = np.argwhere(counts == 0)[0]
        raise DataError(
            f"too few images: {partition} over {clients} clients leaves client {client} without any of class "
            f"{label} ({available[label]} available): use fewer clients, a smaller ratio, or the partition "
            "dirichlet or iid"
        )
    smallest = int(counts.sum(1).min())
    if smallest < SMALLEST:
        raise DataError(
            f"too few images: {partition} over {clients} clients leaves one with {smallest} of the "
            f"{available.sum()} images, but each needs at least {SMALLEST}: use fewer or less uneven clients"
        )


def _of(label: int, partition: Partition) -> str:
    return f" of class {label}" if partition.by_class else ""


def _distinct(pool: Pool, counts: NDArray[np.int64], random: Generator) -> Ids:
    """Draw `counts` distinct random ids of each class, in random order.

    All are drawn at once, and duplicates are drawn again. That is much faster than a choice without
    replacement per class, which is only used for classes of which more than half are drawn.
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
    """Positions of values that occurred before."""
    order = np.argsort(values, kind="stable")
    return np.asarray(order[1:][values[order[1:]] == values[order[:-1]]])
