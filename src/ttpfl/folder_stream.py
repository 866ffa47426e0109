"""Predictions for a stream of image files, as in `ttpfl personalize`."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.core.direction import check_finite
from ttpfl.data.pictures import Unreadable, decode
from ttpfl.data.pixels import as_tensor
from ttpfl.errors import BatchError
from ttpfl.models.signature import Signature
from ttpfl.util.settings_kit import integer


class Prediction(NamedTuple):
    """The predicted class of an image."""

    path: str
    label: str
    confidence: float
    """Probability of the predicted class."""
    probabilities: tuple[float, ...]
    """Probabilities of all classes, in order."""


def predict_pictures(
    predictor: Callable[[Tensor], Tensor],
    paths: Iterable[str | PathLike[str]],
    signature: Signature,
    batch_size: int = 20,
) -> Iterator[Prediction | Unreadable]:
    """Yield predictions for images in the order of `paths`, batch by batch.

    Only one batch is kept in memory, so streams can be endless. A file that cannot be read is reported in
    between, and the next file takes its place in the batch.

    Args:
        predictor: maps a batch to logits; a `Personalizer` also adapts.
        paths: image files, consumed as needed.
        signature: input format and classes of the network.
        batch_size: images per batch; the last batch can be smaller.

    >>> import tempfile, torch, ttpfl
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp(), "white.png")
    >>> Image.new("RGB", (40, 30), "white").save(path)
    >>> signature = ttpfl.models.Signature(("dark", "bright"), (8, 8), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    >>> brightness = lambda x: torch.stack([-x.mean((1, 2, 3)), x.mean((1, 2, 3))], 1)
    >>> for prediction in predict_pictures(brightness, [path], signature):
    ...     print(prediction.label, round(prediction.confidence, 2))
    bright 0.88
    """
    integer(1).check(BatchError, batch_size=batch_size)
    files = (os.fspath(path) for path in paths)
    names: list[str] = []
    pixels: list[NDArray[np.uint8]] = []
    while chunk := list(islice(files, batch_size - len(names))):
        for name, image in zip(chunk, decode(map(Path, chunk), signature.image_size), strict=True):
            if isinstance(image, Unreadable):
                yield image
            else:
                names.append(name)
                pixels.append(image)
        if len(names) == batch_size:
            yield from _predictions(predictor, names, pixels, signature)
            names, pixels = [], []
    if names:
        yield from _predictions(predictor, names, pixels, signature)


def _predictions(
    predictor: Callable[[Tensor], Tensor],
    names: list[str],
    pixels: list[NDArray[np.uint8]],
    signature: Signature,
) -> Iterator[Prediction]:
    logits = check_finite(predictor(as_tensor(np.stack(pixels), signature.mean, signature.std)))
    return predictions(logits, names, signature)


def predictions(logits: Tensor, names: list[str], signature: Signature) -> Iterator[Prediction]:
    """The predicted class of each named sample."""
    probabilities = logits.double().softmax(1)
    classes = probabilities.argmax(1)
    for name, row, index in zip(names, probabilities.tolist(), classes.tolist(), strict=True):
        yield Prediction(name, signature.classes[index], row[index], tuple(row))
