"""The order of target clients' streams. Only the evaluator can sort by label.

An order is that of one client's samples. An arrangement makes one stream of the samples of all clients, as
when a camera is moved; the method is not told where the client changes.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

Order = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]
Places = NDArray[np.float64]
Arrangement = Callable[[Places, Places, np.random.Generator], Places]
"""From the place of each sample's client in the sequence of clients, and the share of the client's samples
that come before it, to the sample's place in the stream."""

VISITS = 3
"""How often a client comes in a recurring stream."""


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


def _continual(client: Places, share: Places, random: np.random.Generator) -> Places:
    """One client after another."""
    return client


def _gradual(client: Places, share: Places, random: np.random.Generator) -> Places:
    """The proportion of a client rises linearly while that of the one before falls, and then falls itself."""
    rising = np.sqrt(2 * share) - 1  # quantiles of the triangular distribution on (-1, 1)
    falling = 1 - np.sqrt(2 * (1 - share))
    place: Places = client + np.where(share < 0.5, rising, falling)
    return place


def _mixed_clients(client: Places, share: Places, random: np.random.Generator) -> Places:
    """Every batch has samples of any clients."""
    return random.random(len(client))


def _recurring(client: Places, share: Places, random: np.random.Generator) -> Places:
    """One client after another, the same sequence several times; each time with other samples."""
    place: Places = client + np.floor(share * VISITS) * (client.max() + 1)
    return place


ARRANGEMENTS: dict[str, Arrangement] = {
    "continual": _continual,
    "gradual": _gradual,
    "mixed-clients": _mixed_clients,
    "recurring": _recurring,
}


ALL_ORDERS = (*ORDERS, *ARRANGEMENTS)


def arranged(name: str, sizes: Sequence[int], seed: tuple[int, ...]) -> NDArray[np.int64]:
    """The positions of all clients' samples, listed client by client, in the order of a common stream.

    The sequence of the clients is random. Samples of one client keep their order, unless clients are mixed.

    >>> arranged("continual", [2, 2, 2], seed=(2,)).tolist()
    [2, 3, 4, 5, 0, 1]
    >>> arranged("recurring", [3, 3], seed=(3,)).tolist()
    [3, 0, 4, 1, 5, 2]
    """
    random = np.random.default_rng(seed)
    client = random.permutation(len(sizes)).astype(np.float64)
    share = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    places = find("order", name, ARRANGEMENTS, DataError)(np.repeat(client, sizes), share, random)
    return np.argsort(places, kind="stable")


def order_of(name: str, labels: NDArray[np.int64], seed: tuple[int, ...]) -> NDArray[np.int64]:
    """The positions of the samples in stream order.

    >>> order_of("label-sorted", np.array([0, 1, 0, 1]), seed=(0,)).tolist()
    [0, 2, 1, 3]
    """
    return find("order", name, ORDERS, DataError)(labels, np.random.default_rng(seed))
