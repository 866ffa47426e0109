"""Samples of clients in rows: images as they are, signals as lines, tables as quantiles of each feature."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo
from ttpfl.data.pixels import Array
from ttpfl.data.samples import as_input

Samples = NDArray[Any]
Drawn = tuple[list[float], str]
"""The vertical centre of each client's row, and what the rows show."""

PLOT = (3, 4)  # height and width of a drawing that is not an image
MOST_NAMES = 50  # of features, to write them
SIDE_BY_SIDE = 80  # letters of names that fit side by side
REACH = 4.0  # standard deviations that a row shows in each direction


def proportions(info: DatasetInfo) -> tuple[int, int]:
    """Height and width of the drawing of one sample."""
    if len(info.shape) == 3:
        return info.shape[1], info.shape[2]
    return PLOT if info.shape else info.image_size


def draw_samples(ax: Any, rows: Sequence[Samples], info: DatasetInfo, columns: int) -> Drawn:
    """Draw one row per client, by the kind of data."""
    if len(info.shape) == 1:
        return _quantiles(ax, rows, info)
    if len(info.shape) == 2:
        return _lines(ax, rows, info, columns)
    images = as_images(np.concatenate(rows), info)  # all on one scale
    sheet = _sheet(np.split(images, np.cumsum([len(row) for row in rows])[:-1]), columns)
    ax.imshow(sheet, aspect="auto")
    centres = [(number + 0.5) * len(sheet) / len(rows) - 0.5 for number in range(len(rows))]
    return centres, "some samples" if info.shape else "first images"


def as_images(samples: Samples, info: DatasetInfo) -> Array:
    """Images as they are; other samples (channels, height, width) in gray.

    Black and white are the 1st and the 99th percentile of all given samples, so that a few outliers do not
    hide the rest.

    >>> from dataclasses import replace
    >>> from ttpfl.data.client_arrays import own_info
    >>> info = replace(own_info("mine", "", "", "", ""), shape=(1, 1, 3), mean=(0.0,), std=(1.0,))
    >>> as_images(np.array([[[[-9.0, 0.0, 9.0]]]]), info)[0, 0].tolist()
    [[0, 0, 0], [127, 127, 127], [255, 255, 255]]
    """
    if not info.shape:
        return samples
    values = as_input(samples, info).mean(1).numpy()
    low, high = np.percentile(values, (1, 99))
    gray = np.clip((values - low) / max(high - low, np.finfo(np.float32).tiny), 0, 1) * 255
    return np.repeat(gray.astype(np.uint8)[..., None], 3, axis=3)


def name_features(ax: Any, info: DatasetInfo) -> None:
    """The names of the columns of a table below them."""
    if 0 < len(info.features) <= MOST_NAMES:
        places, angle = np.arange(len(info.features)) + 0.5, 90 if turned_names(info) else 0
        ax.set_xticks(places, info.features, rotation=angle, fontsize=8, parse_math=False)


def turned_names(info: DatasetInfo) -> tuple[str, ...]:
    """The names of features if they are too long to be written side by side.

    >>> from dataclasses import replace
    >>> from ttpfl.data import dataset_info
    >>> heart = dataset_info("heart")
    >>> len(turned_names(heart)), turned_names(replace(heart, features=("age", "weight")))
    (13, ())
    """
    widest = max(map(len, info.features), default=0)
    return info.features if widest * len(info.features) > SIDE_BY_SIDE else ()


def _sheet(rows: Sequence[Array], columns: int) -> Array:
    """The images of each client in a row, on white."""
    height, width = rows[0].shape[1:3]
    gap = max(1, round(0.06 * max(height, width)))
    sheet = np.full((len(rows), height + gap, columns, width + gap, 3), 255, np.uint8)
    for row, images in zip(sheet, rows, strict=True):
        row[gap // 2 :][:height, : len(images), gap // 2 :][:, :, :width] = images.transpose(1, 0, 2, 3)
    return sheet.reshape(len(rows) * (height + gap), columns * (width + gap), 3)


def _lines(ax: Any, rows: Sequence[Samples], info: DatasetInfo, columns: int) -> Drawn:
    """A small plot for each signal, with a line per channel in its own colour."""
    time = np.linspace(0.05, 0.95, info.shape[1])
    for number, row in enumerate(rows):
        values = np.clip(as_input(row, info).numpy() / REACH, -1, 1)
        for column, channels in enumerate(values):
            for channel, line in enumerate(channels):
                ax.plot(column + time, number + 0.5 - 0.45 * line, f"C{channel % 10}", linewidth=0.6)
    _frame(ax, columns, len(rows))
    return _centres(rows), "some signals" + ", a line per channel" * (info.shape[0] > 1)


def _quantiles(ax: Any, rows: Sequence[Samples], info: DatasetInfo) -> Drawn:
    """For each feature: the middle half of a client's values as a bar, nine tenths as a line, the median."""
    features = np.arange(info.shape[0]) + 0.5
    for number, row in enumerate(rows):
        values = np.clip(as_input(row, info).numpy() / REACH, -1, 1)
        low, first, median, third, high = (
            number + 0.5 - 0.45 * np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
        )
        ax.vlines(features, low, high, "C0", linewidth=0.8)
        ax.bar(features, third - first, 0.6, first, color="C0", alpha=0.4)
        ax.plot(features, median, "_", color="black", markersize=4)
        ax.axhline(number + 0.5, color="lightgray", linewidth=0.5, zorder=0)
    _frame(ax, info.shape[0], len(rows))
    return _centres(rows), "quantiles of each feature, against the source clients' mean"


def _centres(rows: Sequence[Samples]) -> list[float]:
    return [number + 0.5 for number in range(len(rows))]


def _frame(ax: Any, width: int, height: int) -> None:
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
