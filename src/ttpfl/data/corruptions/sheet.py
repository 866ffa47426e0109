"""An overview image: every corruption at every severity."""

import math
from os import PathLike
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ttpfl.data.corruptions.apply import corrupt
from ttpfl.data.corruptions.batch import Pixels
from ttpfl.data.corruptions.registry import names
from ttpfl.errors import DataError
from ttpfl.util.files import written_in_one_step

_CELL = 128  # least side of an enlarged image in pixels
_GAP, _LABEL_WIDTH, _HEADER_HEIGHT = 6, 170, 28


def contact_sheet(images: Pixels, path: str | PathLike[str], seed: int = 0) -> None:
    """Write a PNG with one row per corruption: the clean image, then severity 1 to 5.

    Args:
        images: One uint8 image (height, width, 3), or several, which the rows show in turn.
        path: File to write.
        seed: Random seed.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "corruptions.png")
    >>> contact_sheet(np.full((32, 32, 3), 128, np.uint8), path)
    >>> with Image.open(path) as sheet:
    ...     sheet.size
    (980, 2580)
    """
    stack = images[None] if np.ndim(images) == 3 else images
    if len(stack) == 0:
        raise DataError("there is no image to show: pass at least one")
    enlarge = math.ceil(_CELL / max(stack.shape[1:3]))
    height, width = (length * enlarge + _GAP for length in stack.shape[1:3])
    sheet = Image.new(
        "RGB", (_LABEL_WIDTH + 6 * width + _GAP, _HEADER_HEIGHT + len(names()) * height + _GAP), "white"
    )
    drawing, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for column, title in enumerate(["clean", "1", "2", "3", "4", "5"]):
        drawing.text((_LABEL_WIDTH + column * width + width // 2, 6), title, "black", font, anchor="ma")
    for row, name in enumerate(names()):
        top = _HEADER_HEIGHT + row * height
        drawing.text((_GAP, top + height // 2), name, "black", font, anchor="lm")
        for column, image in enumerate(_versions(stack[row % len(stack)], name, seed)):
            cell = Image.fromarray(image.repeat(enlarge, 0).repeat(enlarge, 1))
            sheet.paste(cell, (_LABEL_WIDTH + column * width, top))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_in_one_step(path) as file:
        sheet.save(file, "PNG")


def _versions(image: Pixels, name: str, seed: int) -> list[Pixels]:
    """The clean image and its five severities, with the same seed."""
    return [image] + [corrupt(image[None], name, severity, [seed])[0] for severity in range(1, 6)]
