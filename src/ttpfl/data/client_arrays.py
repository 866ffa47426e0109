"""The user's own data, already divided into clients."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo, Described, check_labels
from ttpfl.errors import DataError


class ClientData(NamedTuple):
    """One client's images (N, height, width, 3) and their labels, or None if they are unknown."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False, repr=False)
class ClientArrays(Described):
    """Source clients with labels and target clients with or without, by name.

    >>> from ttpfl.data import dataset_info
    >>> site = ClientData(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]))
    >>> target = {"south": site._replace(y=None)}
    >>> client_arrays({"north": site}, target, dataset_info("arrays"), ("cat", "dog"))
    <arrays: 1 source clients, 1 target clients, images of 8x8, 2 classes>
    """

    source: Mapping[str, ClientData]
    target: Mapping[str, ClientData]
    info: DatasetInfo

    def __post_init__(self) -> None:
        if not self.source and not self.target:
            raise DataError(f"{self.info.name}: no clients found")
        for part, clients in (("source", self.source), ("target", self.target)):
            for name, client in clients.items():
                self._check(client, part, f"{part} client {name!r}")

    def _check(self, client: ClientData, part: str, where: str) -> None:
        (x, y), shape = client, (*self.info.image_size, 3)
        if not len(x):
            raise DataError(f"{where} has no images: leave it out")
        if x.dtype != np.uint8 or x.shape[1:] != shape:
            raise DataError(
                f"{where} has images of {x.dtype} {x.shape[1:]}, but all clients need uint8 {shape}: "
                "pass image_size= to resize them"
            )
        if y is not None:
            check_labels(y, len(x), len(self.info.classes), f"labels of {where}")
        elif part == "source":
            raise DataError(f"{where} has no labels: only target clients can do without")

    def __repr__(self) -> str:
        height, width = self.info.image_size
        return (
            f"<{self.info.name}: {len(self.source)} source clients, {len(self.target)} target clients, "
            f"images of {height}x{width}, {len(self.info.classes)} classes>"
        )


def client_arrays(
    source: Mapping[str, ClientData],
    target: Mapping[str, ClientData],
    info: DatasetInfo,
    classes: tuple[str, ...],
) -> ClientArrays:
    """The clients, with `info` completed by their image size and classes."""
    height, width = next((client.x.shape[1:3] for client in (*source.values(), *target.values())), (0, 0))
    return ClientArrays(source, target, replace(info, classes=classes, image_size=(height, width)))


def numbered_classes(labels: Iterable[NDArray[np.int64]], listing: str) -> tuple[str, ...]:
    """Names of numbered classes; every number up to the highest must occur.

    A number far above all others is probably a mistake, or means "unknown".

    >>> numbered_classes([np.array([0, 1]), np.array([2, 1])], "list the classes")
    ('0', '1', '2')
    >>> numbered_classes([np.array([0, 1, 255])], "list the classes")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: the highest label is 255, but no image has the label 2 ...
    """
    seen = np.unique(np.concatenate([np.empty(0, np.int64), *labels]))
    seen = seen[seen >= 0]  # `check_labels` reports negative ones with their place
    highest = int(seen.max(initial=-1))
    if len(seen) <= highest:
        missing = int(np.flatnonzero(seen != np.arange(len(seen)))[0])
        raise DataError(
            f"the highest label is {highest}, but no image has the label {missing} "
            f"({highest + 1 - len(seen)} labels are missing): correct the labels, or {listing}"
        )
    return tuple(map(str, range(highest + 1)))


def own_info(
    name: str, title: str, channels: str, licence: str, instructions: str, places: tuple[str, ...] = ()
) -> DatasetInfo:
    """What is known about the user's own data before it is read."""
    half = (0.5, 0.5, 0.5)
    return DatasetInfo(
        name, title, (), (), (0, 0), channels, half, half, licence, "", instructions, places=places
    )
