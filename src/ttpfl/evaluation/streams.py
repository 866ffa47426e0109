"""The order of target clients' streams. Only the evaluator can sort by label."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

Order = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]


def _iid(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Random order."""
    return random.permutation(len(labels))


def _recorded(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """The client's own order, which may be class by class."""
    return np.arange(len(labels))


def _sorted(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """One class after another, classes in random order."""
    rank = random.permutation(int(labels.max()) + 1)
    return np.argsort(rank[labels], kind="stable")


def _mixed(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Classes come and go: sorted, with noise of the size of a class."""
    rank = random.permutation(int(labels.max()) + 1)
    place = np.empty(len(labels))
    place[np.argsort(rank[labels], kind="stable")] = np.arange(len(labels))
    spread = len(labels) / max(1, len(np.unique(labels)))
    return np.argsort(place + random.normal(0, spread, len(labels)), kind="stable")


ORDERS: dict[str, Order] = {"iid": _iid, "recorded": _recorded, "label-sorted": _sorted, "mixed": _mixed}


def order_of(name: str, labels: NDArray[np.int64], seed: tuple[int, ...]) -> NDArray[np.int64]:
    """The positions of the samples in stream order.

    >>> order_of("label-sorted", np.array([0, 1, 0, 1]), seed=(0,)).tolist()
    [0, 2, 1, 3]
    """
    return find("order", name, ORDERS, DataError)(labels, np.random.default_rng(seed))
