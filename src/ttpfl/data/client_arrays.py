"""The user's own data, already divided into clients."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo, Described, check_labels
from ttpfl.data.samples import Samples
from ttpfl.errors import DataError


class ClientData(NamedTuple):
    """One client's samples and their labels, or None if they are unknown.

    Images are uint8 (N, height, width, 3); anything else is (N, features) or (N, channels, ...).
    """

    x: Samples
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
        check_client(client, self.info, where)
        if client.y is None and part == "source":
            raise DataError(f"{where} has no labels: only target clients can do without")

    def __repr__(self) -> str:
        return (
            f"<{self.info.name}: {len(self.source)} source clients, {len(self.target)} target clients, "
            f"{described_samples(self.info)}, {len(self.info.classes)} classes>"
        )


def described_samples(info: DatasetInfo) -> str:
    """The kind and size of samples, for display."""
    return f"{'samples' if info.shape else 'images'} of {info.size_text}"


def check_client(client: ClientData, info: DatasetInfo, where: str) -> None:
    """Raise a DataError unless the samples have the right shape and the labels are classes."""
    x, y = client
    things = "samples" if info.shape else "images"
    if not len(x):
        raise DataError(f"{where} has no {things}: leave it out")
    if not info.shape and (x.dtype != np.uint8 or x.shape[1:] != (*info.image_size, 3)):
        raise DataError(
            f"{where} has images of {x.dtype} {x.shape[1:]}, but all clients need uint8 "
            f"{(*info.image_size, 3)}: pass image_size= to resize them"
        )
    if info.shape and (x.dtype.kind not in "iuf" or x.shape[1:] != info.shape):
        raise DataError(
            f"{where} has samples of {x.dtype} {x.shape[1:]}, but all clients need numbers of shape "
            f"{info.shape}: bring them to one shape"
        )
    if y is not None:
        check_labels(y, len(x), len(info.classes), f"labels of {where}")


def client_arrays(
    source: Mapping[str, ClientData],
    target: Mapping[str, ClientData],
    info: DatasetInfo,
    classes: tuple[str, ...],
) -> ClientArrays:
    """The clients, with `info` completed by the size of their samples and their classes."""
    return ClientArrays(source, target, completed(info, [*source.values(), *target.values()], classes))


def completed(info: DatasetInfo, clients: Iterable[ClientData], classes: tuple[str, ...]) -> DatasetInfo:
    """What the first client tells about the data: the size of images, or the shape of other samples.

    Images that are to be used as they are have a `shape` already.
    """
    first = next(iter(clients), None)
    if first is None:
        return replace(info, classes=classes)
    if is_image(first.x) and not info.shape:
        height, width = first.x.shape[1:3]
        return replace(info, classes=classes, image_size=(height, width))
    return replace(info, classes=classes, shape=first.x.shape[1:], image_size=(0, 0), mean=(), std=())


def is_image(x: Any) -> bool:
    """Whether the samples are RGB images, with 8 bits per channel."""
    return bool(x.dtype == np.uint8 and len(x.shape) == 4 and x.shape[3] == 3)


def numbered_classes(labels: Iterable[NDArray[np.int64]], listing: str) -> tuple[str, ...]:
    """Names of numbered classes; every number up to the highest must occur.

    A number far above all others is probably a mistake, or means "unknown".

    >>> numbered_classes([np.array([0, 1]), np.array([2, 1])], "list the classes")
    ('0', '1', '2')
    >>> numbered_classes([np.array([0, 1, 255])], "list the classes")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: the highest label is 255, but no sample has the label 2 ...
    """
    seen = np.unique(np.concatenate([np.empty(0, np.int64), *labels]))
    seen = seen[seen >= 0]  # `check_labels` reports negative ones with their place
    highest = int(seen.max(initial=-1))
    if len(seen) <= highest:
        missing = int(np.flatnonzero(seen != np.arange(len(seen)))[0])
        raise DataError(
            f"the highest label is {highest}, but no sample has the label {missing} "
            f"({highest + 1 - len(seen)} labels are missing): correct the labels, or {listing}"
        )
    return tuple(map(str, range(highest + 1)))


def own_info(
    name: str, title: str, channels: str, licence: str, instructions: str, **more: Any
) -> DatasetInfo:
    """What is known about the user's own data before it is read."""
    half = (0.5, 0.5, 0.5)
    return DatasetInfo(name, title, (), (), (0, 0), channels, half, half, licence, "", instructions, **more)
