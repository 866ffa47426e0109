"""Images with labels and domains, and information about data sets."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl._moved import renamed
from ttpfl.errors import DataError


@dataclass(frozen=True)
class File:
    """A file of a data set; `path` is relative to the data directory.

    It is downloaded only over https, and kept only if its hash is right.
    """

    path: str
    url: str
    sha256: str


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded. All images become RGB.

    Samples that are not images have a `shape` instead of an `image_size`.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    """Names in the order of the labels; empty if the user's own data decides."""
    domains: tuple[str, ...]
    image_size: tuple[int, int]
    """Height and width; (0, 0) if the samples are not images or the user's own data decides."""
    channels: str
    """Where the channels come from, for display."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and standard deviation of each channel, for normalisation; of values from 0 to 1 for images. Empty
    until they are computed from the source clients' training data."""
    licence: str
    homepage: str
    instructions: str
    """Which files to put where below the data directory, as the end of a sentence."""
    files: tuple[File, ...] = ()
    """Files to download, with checksums."""
    places: tuple[str, ...] = ()
    """Patterns of its files below the data directory; empty if it needs none."""
    samples: int | None = None
    """Number of images of the complete set, if it is fixed."""
    augmentation: str = ""
    """Random augmentation of training images: domainbed, flips, or none if empty."""
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Defaults for its clients: fields of `PopulationConfig`."""
    natural: bool = False
    """Whether every sample belongs to a client, such as a person. Clients are held out whole."""
    shape: tuple[int, ...] = ()
    """Shape of a sample that is not an image: (features,), (channels, time) or (channels, height, width)."""
    scale: float = 1.0
    """Factor from stored values to physical units. It has no effect on images."""
    features: tuple[str, ...] = ()
    """Names of the features of a table, in order."""
    missing: str = "error"
    """What NaN means: "error", or "mean" for a missing value that the mean of its channel replaces."""

    @property
    def size_text(self) -> str:
        """The size of a sample, for display; empty if it is not known yet.

        >>> from ttpfl.data import dataset_info
        >>> dataset_info("cifar10").size_text
        '32x32'
        """
        return "x".join(map(str, self.shape or (self.image_size if any(self.image_size) else ())))


class Described:
    """Has `info`, which was called `facts` in version 0.1."""

    info: DatasetInfo

    @property
    def facts(self) -> DatasetInfo:
        """Old name of `info`."""
        warnings.warn("facts is now info", DeprecationWarning, stacklevel=2)
        return self.info


@dataclass(frozen=True, eq=False, repr=False)
class Images(Described):
    """A data set in memory: image `x[i]` is of class `y[i]` and domain `domain[i]`.

    >>> from ttpfl.data import dataset_info
    >>> Images(np.zeros((2, 28, 28, 3), np.uint8), np.array([3, 9]), np.array([0, 1]), dataset_info("digits"))
    <digits: 2 images of 28x28, 10 classes, 4 domains>
    """

    x: NDArray[np.uint8]
    """(N, height, width, 3)."""
    y: NDArray[np.int64]
    domain: NDArray[np.int64]
    """Index into `info.domains`."""
    info: DatasetInfo

    def __post_init__(self) -> None:
        name, count = self.info.name, len(self.x)
        if self.x.dtype != np.uint8 or self.x.shape[1:] != (*self.info.image_size, 3):
            raise DataError(
                f"images of {name} must be uint8 of shape (N, *{self.info.image_size}, 3), "
                f"not {self.x.dtype} {self.x.shape}"
            )
        check_labels(self.y, count, len(self.info.classes), f"labels of {name}")
        check_labels(self.domain, count, len(self.info.domains), f"domains of {name}")

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        height, width = self.info.image_size
        return (
            f"<{self.info.name}: {len(self)} images of {height}x{width}, "
            f"{len(self.info.classes)} classes, {len(self.info.domains)} domains>"
        )


def check_labels(y: NDArray[np.int64], count: int, classes: int, where: str) -> None:
    """Raise a DataError unless `y` has an int64 label from 0 to `classes` - 1 for each of `count` images.

    >>> check_labels(np.array([0, 10]), 2, 10, "labels of svhn")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: labels of svhn: number 1 is 10, but there are 10 classes (0 to 9)
    """
    if y.dtype != np.int64 or y.shape != (count,):
        raise DataError(f"{where} must be int64 of shape ({count},), not {y.dtype} {y.shape}")
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if len(wrong):
        raise DataError(
            f"{where}: number {wrong[0]} is {y[wrong[0]]}, "
            f"but there are {classes} classes (0 to {classes - 1})"
        )


__getattr__ = renamed(__name__)
