"""How classes are spread over clients: each partition is a matrix of weights, clients x classes.

Client k gets the fraction weights[k, c] / weights[:, c].sum() of the images of class c.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import POSITIVE, integer, number

Weights = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """A way to spread classes over clients."""

    by_class: ClassVar[bool] = True
    """Whether it depends on classes."""
    every_class: ClassVar[bool] = True
    """Whether every client must have images of every class."""

    def weights(self, clients: int, classes: int, random: Generator) -> Weights:
        """Relative shares of shape (clients, classes); equal by default."""
        return np.ones((clients, classes))


@dataclass(frozen=True)
class Step(Partition):
    """Every client has `majors` classes with `ratio` times as many images as the others.

    Majors are distinct, and all classes are majors about equally often. With `repeat_majors`, they are all
    ordered tuples of classes in turn, as in the paper authors' implementation: with two majors, one client
    in `classes` has the same class twice.

    >>> Step(majors=1, ratio=4).weights(2, 2, np.random.default_rng(0))
    array([[1., 4.],
           [4., 1.]])
    """

    majors: int = 2
    ratio: float = 16.0
    repeat_majors: bool = False

    def __post_init__(self) -> None:
        integer(1).check(DataError, majors=self.majors)
        # With a ratio below 1, majors would be rarer than the other classes.
        number("of at least 1", lambda ratio: ratio >= 1).check(DataError, ratio=self.ratio)

    def weights(self, clients: int, classes: int, random: Generator) -> Weights:
        """1, plus `ratio` - 1 for each time that a class is a major of the client."""
        if not self.repeat_majors and self.majors > classes:
            raise DataError(f"majors is {self.majors}, but there are only {classes} classes")
        if self.repeat_majors and classes**self.majors >= 2**62:
            raise DataError(f"majors is {self.majors}: there are too many tuples of {classes} classes")
        draw = self._tuples if self.repeat_majors else self._balanced
        weights = np.ones((clients, classes))
        for major in draw(clients, classes, random).T:
            weights[np.arange(clients), major] += self.ratio - 1
        return weights

    def _balanced(self, clients: int, classes: int, random: Generator) -> Ids:
        """For each client in turn, the classes chosen least often so far; ties at random."""
        used = np.zeros(classes, np.int64)
        majors = np.empty((clients, self.majors), np.int64)
        for client in range(clients):
            majors[client] = np.lexsort((random.random(classes), used))[: self.majors]
            used[majors[client]] += 1
        return random.permutation(majors)

    def _tuples(self, clients: int, classes: int, random: Generator) -> Ids:
        """Consecutive numbers, whose digits to the base `classes` are the tuples."""
        numbers = random.permutation(clients) + int(random.integers(classes**self.majors))
        return numbers[:, None] // classes ** np.arange(self.majors) % classes


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Every client's class frequencies are drawn from a Dirichlet distribution; a small `alpha` is uneven.

    >>> Dirichlet(0.3).weights(2, 3, np.random.default_rng(0)).round(2)
    array([[0.28, 0.  , 0.72],
           [0.17, 0.12, 0.71]])
    """

    alpha: float = 0.5
    every_class: ClassVar[bool] = False

    def __post_init__(self) -> None:
        POSITIVE.check(DataError, alpha=self.alpha)

    def weights(self, clients: int, classes: int, random: Generator) -> Weights:
        """One draw per client."""
        return random.dirichlet(np.full(classes, self.alpha), clients)


@dataclass(frozen=True)
class Stratified(Partition):
    """Every client has the class frequencies of the data set."""


@dataclass(frozen=True)
class Iid(Partition):
    """Images are dealt out at random, regardless of class."""

    by_class: ClassVar[bool] = False
    every_class: ClassVar[bool] = False


PARTITIONS: dict[str, type[Partition]] = {
    "step": Step, "dirichlet": Dirichlet, "stratified": Stratified, "iid": Iid,
}  # fmt: skip


def relative_sizes(clients: int, skew: float, random: Generator) -> Weights:
    """Sizes of clients around 1: log-normal, where `skew` is the standard deviation of the logarithm.

    >>> relative_sizes(3, 0.0, np.random.default_rng(0))
    array([1., 1., 1.])
    """
    return random.lognormal(-(skew**2) / 2, skew, clients)


def apportion(shares: Weights, total: int, random: Generator) -> NDArray[np.int64]:
    """Integers in proportion to `shares` that add up to `total`.

    Those with the largest remainder are rounded up, ties at random. If all shares are 0 (a Dirichlet draw
    with a small alpha can underflow), a random one gets everything.

    >>> apportion(np.array([1.0, 1.0, 4.0]), 11, np.random.default_rng(0))
    array([2, 2, 7])
    """
    if not shares.any():
        shares = np.arange(len(shares)) == random.integers(len(shares))
    exact = shares / shares.sum() * total
    counts = np.floor(exact + 1e-9).astype(np.int64)  # integers up to rounding errors stay
    remainder = np.round(exact - counts, 9)
    ties = random.random(len(shares))
    counts[np.lexsort((ties, -remainder))[: total - counts.sum()]] += 1
    return np.asarray(counts)
