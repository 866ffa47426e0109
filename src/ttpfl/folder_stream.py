"""A stream of picture files to a stream of predictions: what `ttpfl personalize` does."""

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
    """What a picture shows."""

    path: str
    label: str
    confidence: float
    """The probability of that class."""
    probabilities: tuple[float, ...]
    """Of all classes, in their order."""


def predict_pictures(
    predictor: Callable[[Tensor], Tensor],
    paths: Iterable[str | PathLike[str]],
    signature: Signature,
    batch_size: int = 20,
) -> Iterator[Prediction | Unreadable]:
    """Predictions for pictures in the order of `paths`, as soon as a batch of them is there.

    Nothing is kept but one batch, so that streams may be endless. A file that cannot be read is reported
    in between, and its place in the batch is taken by the next one.

    Args:
        predictor: from a batch to logits; a `Personalizer` adapts meanwhile.
        paths: of picture files; taken as they are needed.
        signature: what the network takes, and what its logits stand for.
        batch_size: pictures that are adapted to at a time; the last batch may be smaller.

    >>> import tempfile, torch, ttpfl
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp(), "white.png")
    >>> Image.new("RGB", (40, 30), "white").save(path)
    >>> signature = ttpfl.models.Signature(("dark", "bright"), (8, 8), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    >>> brightness = lambda x: torch.stack([-x.mean((1, 2, 3)), x.mean((1, 2, 3))], 1)
    >>> for found in predict_pictures(brightness, [path], signature):
    ...     print(found.label, round(found.confidence, 2))
    bright 0.88
    """
    integer(1).check(BatchError, batch_size=batch_size)
    files = (os.fspath(path) for path in paths)
    names: list[str] = []
    pixels: list[NDArray[np.uint8]] = []
    while chunk := list(islice(files, batch_size - len(names))):
        for name, found in zip(chunk, decode(map(Path, chunk), signature.image_size), strict=True):
            if isinstance(found, Unreadable):
                yield found
            else:
                names.append(name)
                pixels.append(found)
        if len(names) == batch_size:
            yield from _answers(predictor, names, pixels, signature)
            names, pixels = [], []
    if names:
        yield from _answers(predictor, names, pixels, signature)


def _answers(
    predictor: Callable[[Tensor], Tensor],
    names: list[str],
    pixels: list[NDArray[np.uint8]],
    signature: Signature,
) -> Iterator[Prediction]:
    logits = check_finite(predictor(as_tensor(np.stack(pixels), signature.mean, signature.std)))
    probabilities = logits.double().softmax(1)
    best = probabilities.argmax(1)
    for name, row, number in zip(names, probabilities.tolist(), best.tolist(), strict=True):
        yield Prediction(name, signature.classes[number], row[number], tuple(row))
