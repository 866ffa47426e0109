"""Digital artefacts, and changes of colour and shape."""

import io

import numpy as np
from PIL import Image
from scipy import ndimage

from ttpfl.data.corruptions.batch import Batch, Images, Pixels, as_values
from ttpfl.data.corruptions.colour import scaled_saturation
from ttpfl.data.corruptions.registry import corruption
from ttpfl.data.corruptions.resample import sample


@corruption((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))
def contrast(batch: Batch, factor: float) -> Images:
    """Pull every channel towards its mean over the image."""
    # Sums of integers do not depend on the order.
    total = batch.pixels.sum((1, 2), dtype=np.int64, keepdims=True)
    mean = (total / (255 * batch.height * batch.width)).astype(np.float32)
    return np.asarray((batch.images - mean) * np.float32(factor) + mean)


@corruption((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
def elastic_transform(batch: Batch, strength: float, smoothing: float, jitter: float) -> Images:
    """A rubber sheet: three points are displaced, then ripples are added; all relative to the image side.

    Ripples grow with severity and displacements shrink, so severity 1 can move pixels farther.
    """
    rows, columns = _pulled(batch, jitter * batch.side)
    pulled = sample(batch.images, rows, columns)
    if strength == 0:
        return pulled
    ripples = batch.uniform(-1, 1, 2, batch.height, batch.width)
    sd = smoothing * batch.side
    ripples = ndimage.gaussian_filter(ripples, (0, 0, sd, sd), mode="reflect", truncate=3)
    # Smoothing over more pixels weakens the noise; the scale compensates.
    down, right = (ripples * np.float32(strength * batch.side * batch.scale)).swapaxes(0, 1)
    return sample(pulled, down + np.arange(batch.height)[:, None], right + np.arange(batch.width))


def _pulled(batch: Batch, jitter: float) -> tuple[Images, Images]:
    """The origin of each pixel when three points around the centre move by up to `jitter`."""
    third = batch.side // 3
    centre = np.array([batch.height // 2, batch.width // 2])
    points = centre + third * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = points + batch.uniform(-jitter, jitter, 3, 2)
    # The affine map from the moved points to the original ones.
    back = np.linalg.solve(np.concatenate([moved, np.ones((len(moved), 3, 1))], 2), points.astype(float))
    row, column, offset = (back[:, part, :, None, None].astype(np.float32) for part in range(3))
    place = row * np.arange(batch.height)[:, None] + column * np.arange(batch.width) + offset
    return place[:, 0], place[:, 1]


@corruption((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))
def pixelate(batch: Batch, fraction: float) -> Images:
    """Scale down to this fraction of the side and up again, with box filters."""
    small = (int(batch.width * fraction), int(batch.height * fraction))

    def pixelated(pixels: Pixels) -> Pixels:
        reduced = Image.fromarray(pixels).resize(small, Image.Resampling.BOX)
        return np.asarray(reduced.resize((batch.width, batch.height), Image.Resampling.BOX))

    return as_values(np.stack([pixelated(pixels) for pixels in batch.pixels]))


@corruption((80,), (65,), (58,), (50,), (40,))
def jpeg_compression(batch: Batch, quality: int) -> Images:
    """Encode as JPEG of this quality, and decode."""

    def compressed(pixels: Pixels) -> Pixels:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    return as_values(np.stack([compressed(pixels) for pixels in batch.pixels]))


@corruption((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))
def saturate(batch: Batch, factor: float, plus: float) -> Images:
    """Less colour at severities 1 and 2, more from 3 on.

    Gray images have no saturation to scale: severities 1 to 3 do not change them; 4 and 5 tint them red, the
    hue of gray in the colour model.
    """
    return scaled_saturation(batch.images, factor, plus)
