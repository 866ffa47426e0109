"""Frost on a window: a generated texture of ice crystals, or the user's own textures.

The benchmark's photographs of frost cannot be redistributed. The built-in texture has their statistics at
this scale: bluish white, with a gray mean of 130 to 207 and a standard deviation of 16 to 34 per 32x32 piece.
But it shows feathery crystals everywhere, while photographs also show clear glass, rims and a view behind.
Accuracies under frost are comparable with each other, but not exactly with those on CIFAR-10-C.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from ttpfl.data.corruptions.batch import REFERENCE_SIDE, Batch, Pixels
from ttpfl.data.corruptions.plasma import plasma

_SIDE = 1024  # of the built-in texture
_PIECE = 2 * REFERENCE_SIDE  # what an image shows of it; double, for larger images
_CRYSTALS = 2600
_MEAN, _SPREAD_OF_MEANS, _CONTRAST = 170.0, 60.0, 29.0


def pieces(batch: Batch) -> Pixels:
    """A random piece of a texture for each image."""
    zoom = 1.0 if batch.frost_textures else _PIECE / batch.side
    textures = batch.frost_textures or [built_in()]
    size = (batch.width, batch.height)
    return np.stack([_piece(textures, size, zoom, random) for random in batch.random])


def _piece(
    textures: Sequence[Image.Image], size: tuple[int, int], zoom: float, random: np.random.Generator
) -> Pixels:
    texture = textures[int(random.integers(len(textures)))]
    width, height = (min(zoom * length, most) for length, most in zip(size, texture.size, strict=True))
    left = int(random.integers(int(texture.width - width) + 1))
    top = int(random.integers(int(texture.height - height) + 1))
    box = (left, top, left + width, top + height)
    return np.asarray(texture.resize(size, Image.Resampling.BILINEAR, box))


@cache
def built_in() -> Image.Image:
    """The built-in texture, which is always the same and drawn once per process."""
    random = np.random.default_rng(20)
    crystals = np.asarray(_crystals(random), np.float32)
    haze, light = plasma(random.uniform(-1, 1, (2, _SIDE, _SIDE)).astype(np.float32), decay=1.4)
    structure = _levelled(ndimage.gaussian_filter(crystals, 0.7) + 120 * haze)
    means = _MEAN + _SPREAD_OF_MEANS * (ndimage.uniform_filter(light, _PIECE, mode="wrap") - 0.5)
    return Image.fromarray(_icy(means + _CONTRAST * structure))


def _levelled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Normalise to mean 0 and standard deviation 1 around every pixel, so that all pieces are alike."""
    for _ in range(2):
        values = values - ndimage.uniform_filter(values, _PIECE, mode="wrap")
        values = values / np.sqrt(ndimage.uniform_filter(values**2, _PIECE, mode="wrap"))
    return values


def _icy(grey: NDArray[np.float32]) -> Pixels:
    """Gray values in the colours of ice: white where bright, blue where dark."""
    shadow = np.clip((255 - grey) / 255, 0, 1)
    channels = [grey - 34 * shadow, grey + 6 * shadow, grey + 58 * shadow]
    return np.clip(np.rint(np.stack(channels, -1)), 0, 255).astype(np.uint8)


def _crystals(random: np.random.Generator) -> Image.Image:
    canvas = Image.new("L", (_SIDE, _SIDE))
    drawing = ImageDraw.Draw(canvas)
    for _ in range(_CRYSTALS):
        x, y = random.uniform(-40, _SIDE + 40, 2)
        length = random.uniform(15, 80)
        _feather(drawing, x, y, random.uniform(0, 2 * math.pi), length, int(random.integers(90, 256)))
    return canvas


def _feather(
    drawing: ImageDraw.ImageDraw, x: float, y: float, angle: float, length: float, shade: int
) -> None:
    """Draw a stem with shrinking branches at 60 degrees on both sides, as ice grows."""
    right, down = math.cos(angle), math.sin(angle)
    drawing.line((x, y, x + length * right, y + length * down), shade, 2)
    spacing = 7.0
    for branch in range(1, int(length / spacing)):
        along = branch * spacing
        reach = 0.45 * (length - along)
        start = (x + along * right, y + along * down)
        for turn in (angle - math.pi / 3, angle + math.pi / 3):
            end = (start[0] + reach * math.cos(turn), start[1] + reach * math.sin(turn))
            drawing.line((*start, *end), int(0.85 * shade), 1 if reach < 12 else 2)
