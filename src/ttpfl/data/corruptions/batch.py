"""The input of a corruption: images, and a random generator for each of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels: TypeAlias = NDArray[np.uint8]  # (images, height, width, 3), 0 to 255
Images: TypeAlias = NDArray[np.float32]  # the same, 0 to 1

REFERENCE_SIDE = 32  # the image side of the benchmark's constants


def as_values(pixels: Pixels) -> Images:
    """Bytes as values from 0 to 1."""
    return pixels.astype(np.float32) / np.float32(255)


@dataclass(frozen=True)
class Batch:
    """Images of one size. The result for an image must not depend on the others.

    So random numbers come from the image's own generator, and the order of sums does not depend on the number
    of images.

    >>> batch = Batch(np.full((2, 64, 64, 3), 51, np.uint8), [np.random.default_rng(0)] * 2)
    >>> batch.scale, batch.images[0, 0, 0]
    (2.0, array([0.2, 0.2, 0.2], dtype=float32))
    """

    pixels: Pixels
    random: Sequence[np.random.Generator]  # one per image
    frost_textures: Sequence[Image.Image] = ()  # empty: the built-in one

    @cached_property
    def images(self) -> Images:
        """The images with values from 0 to 1, read-only by convention."""
        return as_values(self.pixels)

    @property
    def height(self) -> int:
        """Height of the images in pixels."""
        return int(self.pixels.shape[1])

    @property
    def width(self) -> int:
        """Width of the images in pixels."""
        return int(self.pixels.shape[2])

    @property
    def side(self) -> int:
        """The shorter side in pixels."""
        return min(self.height, self.width)

    @property
    def scale(self) -> float:
        """The factor for lengths in pixels, relative to the benchmark's 32x32 images."""
        return self.side / REFERENCE_SIDE

    def draw(self, numbers: Callable[[np.random.Generator], Any]) -> NDArray[np.float32]:
        """Apply `numbers` to each image's generator, and stack the results."""
        return np.stack([numbers(random) for random in self.random]).astype(np.float32, copy=False)

    def normal(self, *shape: int) -> NDArray[np.float32]:
        """Standard normal numbers of this shape for each image."""
        return self.draw(lambda random: random.standard_normal(shape, dtype=np.float32))

    def uniform(self, low: float, high: float, *shape: int) -> NDArray[np.float32]:
        """Uniform numbers of this shape for each image."""
        unit = self.draw(lambda random: random.random(shape, dtype=np.float32))
        return np.float32(low) + np.float32(high - low) * unit
