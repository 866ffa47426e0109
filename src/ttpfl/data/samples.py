"""Stored samples of any shape and type as inputs of a network, normalised by source clients alone."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.data.images import DatasetInfo
from ttpfl.data.partition import Ids
from ttpfl.data.pixels import as_tensor
from ttpfl.errors import DataError

Numbers = NDArray[np.float64]

_BLOCK = 2**15  # values converted at a time, so that data in files is never copied as a whole


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of an array, which may be in a file; they are read on access.

    >>> rows = Rows(np.arange(10) * 10, np.array([2, 5, 7]))
    >>> len(rows), rows[np.array([0, 2])]
    (3, array([20, 70]))
    """

    array: NDArray[Any]
    rows: Ids

    @property
    def shape(self) -> tuple[int, ...]:
        """As if it were an array."""
        return (len(self.rows), *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """As if it were an array."""
        return self.array.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, ids: Ids) -> NDArray[Any]:
        return np.asarray(self.array[self.rows[ids]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.array[self.rows], dtype)


Samples: TypeAlias = NDArray[Any] | Rows
"""The samples of one client: the first dimension counts them."""


class InputFormat(Protocol):
    """How stored samples become inputs; `DatasetInfo` and `ttpfl.models.Signature` have it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample; empty for images."""

    @property
    def scale(self) -> float:
        """Factor before normalisation."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel."""

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel."""

    @property
    def missing(self) -> str:
        """What NaN means."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of a table."""


def as_input(samples: NDArray[Any], info: InputFormat, numbers: Sequence[int] | None = None) -> Tensor:
    """Normalised samples for a network. `numbers` are theirs in errors, by default from 0.

    >>> from ttpfl.data.client_arrays import own_info
    >>> from dataclasses import replace
    >>> info = replace(own_info("mine", "", "", "", ""), shape=(2,), scale=0.1, mean=(1.0, 0.0), std=(2, 1))
    >>> as_input(np.array([[50, 3]], np.int16), info)
    tensor([[2.0000, 0.3000]])
    """
    if not info.shape:
        return as_tensor(samples, info.mean, info.std)
    mean, std = (np.array(each).reshape(-1, *[1] * (samples.ndim - 2)) for each in (info.mean, info.std))
    values = (samples * np.float64(info.scale) - mean) / std
    if info.missing == "mean":
        values[np.isnan(values)] = 0.0
    if not np.isfinite(values).all():
        row, channel = np.argwhere(~np.isfinite(values))[0, :2].tolist()
        number = row if numbers is None else numbers[row]
        place = f"feature {info.features[channel]!r}" if info.features else f"channel {channel}"
        advice = "" if info.missing == "mean" else ", or pass missing='mean' if NaN is unknown"
        raise DataError(f"sample {number} has NaN or Inf ({place}): correct it{advice}")
    return torch.from_numpy(values.astype(np.float32))


@dataclass
class Moments:
    """Count, mean and squared deviations of each channel. Only these leave a client.

    >>> moments = Moments(1)
    >>> moments.add(Moments.of(np.array([[1.0], [3.0]])))
    >>> moments.add(Moments.of(np.array([[8.0]])))
    >>> moments.mean, moments.std
    (array([4.]), array([2.94392029]))
    """

    channels: int
    count: Numbers = field(init=False)
    mean: Numbers = field(init=False)
    squares: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.count, self.mean, self.squares = (np.zeros(self.channels) for _ in range(3))

    @classmethod
    def of(cls, values: Numbers) -> "Moments":
        """The moments of samples (N, channels, ...); NaN does not count."""
        moments = cls(values.shape[1])
        by_channel = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
        known = ~np.isnan(by_channel)
        moments.count = known.sum(1).astype(np.float64)
        total = np.where(known, by_channel, 0.0).sum(1)
        moments.mean = total / np.maximum(1, moments.count)
        deviations = np.where(known, by_channel - moments.mean[:, None], 0.0)
        moments.squares = (deviations**2).sum(1)
        return moments

    def add(self, other: "Moments") -> None:
        """Add the moments of other samples, in the stable form of Chan, Golub and LeVeque."""
        count = self.count + other.count
        share = other.count / np.maximum(1, count)
        gap = other.mean - self.mean
        self.squares = self.squares + other.squares + gap**2 * self.count * share
        self.mean = self.mean + gap * share
        self.count = count

    @property
    def std(self) -> Numbers:
        """The standard deviation of each channel; 1 for a constant one."""
        std = np.sqrt(self.squares / np.maximum(1, self.count))
        return np.where(std > 0, std, 1.0)


def normalisation(
    clients: Iterable[tuple[str, Samples, Ids]], info: DatasetInfo
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The federated mean and standard deviation of each channel over the samples `ids` of all clients.

    >>> from ttpfl.data.client_arrays import own_info
    >>> from dataclasses import replace
    >>> info = replace(own_info("mine", "", "", "", ""), shape=(2,))
    >>> normalisation([("a", np.array([[1, 5], [3, 5], [9, 9]]), np.array([0, 1]))], info)
    ((2.0, 5.0), (1.0, 1.0))
    """
    moments = Moments(info.shape[0])
    for values in _blocks(clients, info):
        moments.add(Moments.of(values))
    if not moments.count.all():
        raise DataError(f"channel {int(moments.count.argmin())} has no value at any source client: remove it")
    return tuple(moments.mean.tolist()), tuple(moments.std.tolist())


def _blocks(clients: Iterable[tuple[str, Samples, Ids]], info: DatasetInfo) -> Iterator[Numbers]:
    """All values in blocks of about the same size: parts of large clients, several small clients together."""
    step, parts, count = max(1, _BLOCK // math.prod(info.shape)), list[tuple[str, NDArray[Any]]](), 0
    for name, samples, ids in clients:
        ids = np.sort(ids)  # files are read in order
        for start in range(0, len(ids), step):
            parts.append((name, samples[ids[start : start + step]]))
            count += len(parts[-1][1])
            if count >= step:
                yield _together(parts, info)
                parts, count = [], 0
    if parts:
        yield _together(parts, info)


def _together(parts: list[tuple[str, NDArray[Any]]], info: DatasetInfo) -> Numbers:
    """The values of several clients; an error names the first client with NaN or Inf where it must not be."""
    block: Numbers = np.concatenate([values for _, values in parts]) * np.float64(info.scale)
    if not np.isfinite(block.sum()):
        for name, values in parts:
            if np.isinf(values).any() or (info.missing == "error" and np.isnan(values).any()):
                raise DataError(
                    f"source client {name!r} has NaN or Inf: correct it, or pass missing='mean' if NaN is "
                    "unknown"
                )
    return block
