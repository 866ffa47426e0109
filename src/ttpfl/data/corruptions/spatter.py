"""Drops of water and mud on the lens."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.data.corruptions.blur import smooth
from ttpfl.data.corruptions.edges import canny
from ttpfl.data.corruptions.registry import corruption
from ttpfl.data.corruptions.resample import resize

WATER = np.array([175, 238, 238], np.float32) / np.float32(255)
MUD = np.array([63, 42, 20], np.float32) / np.float32(255)

_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # light from the lower right
_BOX = np.ones((3, 3), int)
_FARTHEST = 20  # pixels of a 32x32 image from the rim of a drop; farther inside, drops are flat


@corruption(
    (0.62, 0.1, 0.7, 0.7, 0.5, False),
    (0.65, 0.1, 0.8, 0.7, 0.5, False),
    (0.65, 0.3, 1.0, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True),
    (0.65, 0.1, 0.5, 0.68, 0.6, True),
)
def spatter(
    batch: Batch, mean: float, sd: float, blur_sd: float, threshold: float, last: float, mud: bool
) -> Images:
    """Drops of water (severities 1 to 3) or mud (4 and 5); `last` is water's opacity or mud's second blur.

    Drops scale with the image. For images below 32 pixels they are made at 32 and scaled down, because a blur
    below half a pixel has no effect. Blurred noise has a spread of sd / blur_sd, so sd scales with the blur,
    and drops cover about the same fraction of the image at every size.
    """
    scale = max(1.0, batch.scale)
    height, width = (round(length * scale / batch.scale) for length in (batch.height, batch.width))
    noise = np.float32(sd * scale) * batch.normal(height, width, 1)
    liquid = np.float32(mean) + smooth(noise, blur_sd * scale)
    if mud:
        cover = smooth((liquid > threshold).astype(np.float32), last * scale)
        cover = resize(np.where(cover < 0.8, np.float32(0), cover), batch.height, batch.width)
        return batch.images * (1 - cover) + cover * MUD
    layer = np.where(liquid < threshold, 0, np.clip(liquid, 0, 1) * 255).astype(np.uint8)[..., 0]
    light = resize(shine(layer, scale)[..., None], batch.height, batch.width)
    return batch.images + np.float32(last) * light * WATER


def shine(layers: NDArray[np.uint8], scale: float) -> NDArray[np.float32]:
    """Reflected light: 0 beside drops, up to 1 where their rims face the light."""
    step = round(scale)
    rims = canny(layers, 50, 150)
    # Distances and their integer levels are in pixels of a 32x32 image.
    height = np.stack([np.minimum(distance_to(rim) / scale, _FARTHEST) for rim in rims])
    level = filtered(height, _BOX, step) / 9
    relief = np.stack([equalised(layer) for layer in level.astype(np.uint8)])
    embossed = np.clip(filtered(relief.astype(np.float64), _EMBOSS, step), 0, 255)
    light = layers * np.rint(filtered(embossed, _BOX, step) / 9)
    brightest = light.max((1, 2), keepdims=True)
    return np.asarray(light / np.where(brightest == 0, 1, brightest), np.float32)


def filtered(layers: NDArray[np.float64], kernel: NDArray[np.int_], step: int) -> NDArray[np.float64]:
    """Apply a 3x3 kernel to each layer, with pixels `step` apart; edges are mirrored."""
    spaced = np.zeros((1, 2 * step + 1, 2 * step + 1))
    spaced[0, ::step, ::step] = kernel
    return np.asarray(ndimage.correlate(layers, spaced, mode="mirror"))


def distance_to(points: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each pixel's distance to the nearest point, or infinity if there is none."""
    if not points.any():
        return np.full(points.shape, np.inf)
    return np.asarray(ndimage.distance_transform_edt(~points))


def equalised(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Histogram equalisation over 0 to 255; a constant image does not change.

    >>> equalised(np.array([[3, 3, 4, 5]], np.uint8))
    array([[  0,   0, 128, 255]], dtype=uint8)
    """
    counts = np.bincount(levels.ravel(), minlength=256)
    below = counts.cumsum() - counts[levels.min()]
    if below[-1] == 0:
        return levels
    table = np.rint(np.maximum(below, 0) * (255 / below[-1])).astype(np.uint8)
    return np.asarray(table[levels])
