"""The user's own data, already divided into clients."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo, Described, check_labels
from ttpfl.errors import DataError


class ClientData(NamedTuple):
    """One client's images (N, height, width, 3) and, where they are known, their labels."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False, repr=False)
class ClientArrays(Described):
    """Source clients with labels, target clients with or without, by name.

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
            raise DataError(f"{self.info.name}: there are no clients")
        for part, clients in (("source", self.source), ("target", self.target)):
            for name, client in clients.items():
                self._check(client, part, f"{part} client {name!r}")

    def _check(self, client: ClientData, part: str, where: str) -> None:
        x, y = client
        if not len(x):
            raise DataError(f"{where} has no images: leave it out")
        if x.dtype != np.uint8 or x.shape[1:] != (*self.info.image_size, 3):
            raise DataError(
                f"{where} has images of {x.dtype} {x.shape[1:]}, but uint8 {(*self.info.image_size, 3)} "
                "is needed, the same for all clients: pass image_size= to resize them"
            )
        if y is not None:
            check_labels(y, len(x), len(self.info.classes), f"labels of {where}")
        elif part == "source":
            raise DataError(f"{where} has no labels: only target clients may be without")

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
    """Clients with facts completed by what is found in them."""
    first = next(iter([*source.values(), *target.values()]), None)
    size = first.x.shape[1:3] if first is not None else (0, 0)
    return ClientArrays(source, target, replace(info, classes=classes, image_size=(size[0], size[1])))


def numbered_classes(labels: Iterable[NDArray[np.int64]], listing: str) -> tuple[str, ...]:
    """Names for classes that are known by their numbers alone: every number up to the highest must occur.

    A number that stands alone far above the others is rather a mistake, or stands for "unknown".

    >>> numbered_classes([np.array([0, 1]), np.array([2, 1])], "list the classes")
    ('0', '1', '2')
    >>> numbered_classes([np.array([0, 1, 255])], "list the classes")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: the highest label is 255, but no image has the label 2 ...
    """
    seen = np.unique(np.concatenate([np.empty(0, np.int64), *labels]))
    seen = seen[seen >= 0]  # others are found, and named with their place, by `check_labels`
    highest = int(seen.max(initial=-1))
    if len(seen) <= highest:
        missing = int(np.flatnonzero(seen != np.arange(len(seen)))[0])
        raise DataError(
            f"the highest label is {highest}, but no image has the label {missing} "
            f"({highest + 1 - len(seen)} labels do not occur): correct the labels, or {listing}"
        )
    return tuple(map(str, range(highest + 1)))


def own_facts(
    name: str, title: str, channels: str, licence: str, instructions: str, places: tuple[str, ...] = ()
) -> DatasetInfo:
    """What is known about the user's own data before it is read: no more than this."""
    return DatasetInfo(
        name,
        title,
        classes=(),
        domains=(),
        image_size=(0, 0),
        channels=channels,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        licence=licence,
        homepage="",
        instructions=instructions,
        places=places,
    )
