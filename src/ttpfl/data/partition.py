"""How unevenly classes are spread over clients: each way gives clients x classes weights.

`allocate` turns weights into images: client k gets the part weights[k, c] / weights[:, c].sum() of the
images of class c.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import POSITIVE, integer, number

Weights = NDArray[np.float64]
Ids = NDArray[np.int64]


class Partition(Protocol):
    """A way to spread classes over clients."""

    by_class: ClassVar[bool]
    """Whether classes are told apart at all."""
    every_class: ClassVar[bool]
    """Whether it is a promise that every client has images of every class."""

    def weights(self, clients: int, classes: int, random: np.random.Generator) -> Weights:
        """How much of each class each client gets, in any unit; of shape (clients, classes)."""


@dataclass(frozen=True)
class Step:
    """Every client has `majors` classes of which it gets `ratio` times as many images as of the others.

    Majors are distinct, and all classes are majors equally often (as nearly as the numbers allow). With
    `repeat_majors` they are instead all ordered tuples of classes in turn, as in the implementation of the
    paper's authors: with two majors, one client in `classes` has the same class twice.

    >>> Step(majors=1, ratio=4).weights(2, 2, np.random.default_rng(0))
    array([[1., 4.],
           [4., 1.]])
    """

    majors: int = 2
    ratio: float = 16.0
    repeat_majors: bool = False
    by_class: ClassVar[bool] = True
    every_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer(1).check(DataError, majors=self.majors)
        # A smaller ratio would make minors of majors.
        number("of at least 1", lambda ratio: ratio >= 1).check(DataError, ratio=self.ratio)

    def weights(self, clients: int, classes: int, random: np.random.Generator) -> Weights:
        """1, plus `ratio` - 1 for each time that the class is a major of the client."""
        if not self.repeat_majors and self.majors > classes:
            raise DataError(f"majors is {self.majors}, but there are only {classes} classes")
        if self.repeat_majors and classes**self.majors >= 2**62:
            raise DataError(f"majors is {self.majors}: so many tuples of {classes} classes cannot be counted")
        draw = self._tuples if self.repeat_majors else self._balanced
        weights = np.ones((clients, classes))
        for major in draw(clients, classes, random).T:
            weights[np.arange(clients), major] += self.ratio - 1
        return weights

    def _balanced(self, clients: int, classes: int, random: np.random.Generator) -> Ids:
        """For each client in turn the classes that were chosen least often so far, ties at random."""
        used = np.zeros(classes, np.int64)
        majors = np.empty((clients, self.majors), np.int64)
        for client in range(clients):
            majors[client] = np.lexsort((random.random(classes), used))[: self.majors]
            used[majors[client]] += 1
        return random.permutation(majors)

    def _tuples(self, clients: int, classes: int, random: np.random.Generator) -> Ids:
        """The digits of a number to the base `classes` are one tuple."""
        numbers = random.permutation(clients) + int(random.integers(classes**self.majors))
        return numbers[:, None] // classes ** np.arange(self.majors) % classes


@dataclass(frozen=True)
class Dirichlet:
    """Every client's class frequencies are drawn from a Dirichlet distribution: a small `alpha` is uneven.

    >>> Dirichlet(0.3).weights(2, 3, np.random.default_rng(0)).round(2)
    array([[0.28, 0.  , 0.72],
           [0.17, 0.12, 0.71]])
    """

    alpha: float = 0.5
    by_class: ClassVar[bool] = True
    every_class: ClassVar[bool] = False

    def __post_init__(self) -> None:
        POSITIVE.check(DataError, alpha=self.alpha)

    def weights(self, clients: int, classes: int, random: np.random.Generator) -> Weights:
        """One draw per client."""
        return random.dirichlet(np.full(classes, self.alpha), clients)


@dataclass(frozen=True)
class Stratified:
    """Every client has the class frequencies of the whole."""

    by_class: ClassVar[bool] = True
    every_class: ClassVar[bool] = True

    def weights(self, clients: int, classes: int, random: np.random.Generator) -> Weights:
        """All the same."""
        return np.ones((clients, classes))


@dataclass(frozen=True)
class Iid:
    """Images are dealt out at random, whatever they show."""

    by_class: ClassVar[bool] = False
    every_class: ClassVar[bool] = False

    def weights(self, clients: int, classes: int, random: np.random.Generator) -> Weights:
        """All the same; `classes` is 1, for they are not told apart."""
        return np.ones((clients, classes))


PARTITIONS: dict[str, type[Step] | type[Dirichlet] | type[Stratified] | type[Iid]] = {
    "step": Step,
    "dirichlet": Dirichlet,
    "stratified": Stratified,
    "iid": Iid,
}


def relative_sizes(clients: int, skew: float, random: np.random.Generator) -> Weights:
    """Sizes of clients around 1: log-normal with a standard deviation of the logarithm of `skew`.

    >>> relative_sizes(3, 0.0, np.random.default_rng(0))
    array([1., 1., 1.])
    """
    return random.lognormal(-(skew**2) / 2, skew, clients)


def whole(shares: Weights, total: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers in proportion to `shares` that add up to `total`.

    Those with the largest remainder are rounded up, ties at random. Where all shares are 0 (a Dirichlet
    distribution with a small alpha can give too little for a number), one of them at random has everything.

    >>> whole(np.array([1.0, 1.0, 4.0]), 11, np.random.default_rng(0))
    array([2, 2, 7])
    """
    if not shares.any():
        shares = np.arange(len(shares)) == random.integers(len(shares))
    exact = shares / shares.sum() * total
    # What is a whole number up to rounding errors is that number.
    counts = np.floor(exact + 1e-9).astype(np.int64)
    remainder = np.round(exact - counts, 9)
    ties = random.random(len(shares))
    counts[np.lexsort((ties, -remainder))[: total - counts.sum()]] += 1
    return np.asarray(counts)
