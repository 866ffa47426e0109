"""Drops of water and mud on the lens."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.data.corruptions.blur import smooth
from ttpfl.data.corruptions.edges import canny
from ttpfl.data.corruptions.registry import corruption

WATER = np.array([175, 238, 238], np.float32) / np.float32(255)
MUD = np.array([63, 42, 20], np.float32) / np.float32(255)

_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # light from the lower right
_BOX = np.ones((1, 3, 3), int)
_FARTHEST = 20  # pixels of a 32x32 image from the rim of a drop; beyond, drops are flat


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
    """Drops of water (severity 1 to 3) or mud (4 and 5); `last` is the opacity of water or mud's second blur.

    Drops grow with the image. Blurred noise has a spread of sd / blur_sd, so the noise's sd grows as
    well, and the drops cover the same part of the image at every size.
    """
    noise = np.float32(sd * batch.scale) * batch.normal(batch.height, batch.width, 1)
    liquid = np.float32(mean) + smooth(noise, blur_sd * batch.scale)
    if mud:
        cover = smooth((liquid > threshold).astype(np.float32), last * batch.scale)
        cover[cover < 0.8] = 0
        return batch.images * (1 - cover) + cover * MUD
    layer = np.where(liquid < threshold, 0, np.clip(liquid, 0, 1) * 255).astype(np.uint8)[..., 0]
    return batch.images + np.float32(last) * shine(layer, batch.scale)[..., None] * WATER


def shine(layers: NDArray[np.uint8], scale: float) -> NDArray[np.float32]:
    """How drops reflect the light: 0 beside them, up to 1 where their rims face it."""
    farthest = min(_FARTHEST * scale, 255)
    rims = canny(layers, 50, 150)
    height = np.stack([np.minimum(distance_to(rim), farthest) for rim in rims])
    level = (ndimage.correlate(height, _BOX, mode="mirror") / 9).astype(np.uint8)
    relief = np.stack([equalised(one) for one in level]).astype(np.int64)
    relief = np.clip(ndimage.correlate(relief, _EMBOSS[None], mode="mirror"), 0, 255)
    light = layers * np.rint(ndimage.correlate(relief, _BOX, mode="mirror") / 9)
    brightest = light.max((1, 2), keepdims=True)
    shining: NDArray[np.float32] = (light / np.where(brightest == 0, 1, brightest)).astype(np.float32)
    return shining


def distance_to(points: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Each pixel's distance to the nearest point, infinite where there is none."""
    if not points.any():
        return np.full(points.shape, np.inf)
    distance: NDArray[np.float64] = ndimage.distance_transform_edt(~points)
    return distance


def equalised(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The image with its histogram spread evenly over 0 to 255; a constant one stays as it is.

    >>> equalised(np.array([[3, 3, 4, 5]], np.uint8))
    array([[  0,   0, 128, 255]], dtype=uint8)
    """
    counts = np.bincount(levels.ravel(), minlength=256)
    below = counts.cumsum() - counts[levels.min()]
    if below[-1] == 0:
        return levels
    table = np.rint(np.maximum(below, 0) * (255 / below[-1])).astype(np.uint8)
    spread: NDArray[np.uint8] = table[levels]
    return spread
