"""What happens to pictures in computers, and colours and shapes that are off."""

import io

import numpy as np
from PIL import Image
from scipy import ndimage

from ttpfl.data.corruptions.batch import Batch, Images, Pixels
from ttpfl.data.corruptions.colour import scaled_saturation
from ttpfl.data.corruptions.registry import corruption
from ttpfl.data.corruptions.resample import sample


@corruption((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))
def contrast(batch: Batch, factor: float) -> Images:
    """Every channel pulled towards its mean over the image."""
    # Sums of integers are the same in any order.
    total = batch.pixels.sum((1, 2), dtype=np.int64, keepdims=True)
    mean = (total / (255 * batch.height * batch.width)).astype(np.float32)
    flat: Images = (batch.images - mean) * np.float32(factor) + mean
    return flat


@corruption((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
def elastic_transform(batch: Batch, strength: float, smoothing: float, jitter: float) -> Images:
    """A rubber sheet: three points pulled apart, then small ripples; all in parts of the image side.

    With the severity the ripples grow and the pull shrinks, so that severity 1 may move pixels farther.
    """
    rows, columns = _pulled(batch, jitter * batch.side)
    pulled = sample(batch.images, rows, columns)
    if strength == 0:
        return pulled
    ripples = batch.uniform(-1, 1, 2, batch.height, batch.width)
    sd = smoothing * batch.side
    ripples = ndimage.gaussian_filter(ripples, (0, 0, sd, sd), mode="reflect", truncate=3)
    # Smoothing over more pixels leaves less of the noise; the scale makes up for it.
    ripples *= np.float32(strength * batch.side * batch.scale)
    return sample(
        pulled, ripples[:, 0] + np.arange(batch.height)[:, None], ripples[:, 1] + np.arange(batch.width)
    )


def _pulled(batch: Batch, jitter: float) -> tuple[Images, Images]:
    """Where each pixel comes from when three points around the centre move by up to `jitter`."""
    third = batch.side // 3
    centre = np.array([batch.height // 2, batch.width // 2])
    points = centre + third * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = points + batch.uniform(-jitter, jitter, 3, 2)
    # The affine map that takes the moved points back to where they were.
    back = np.linalg.solve(np.concatenate([moved, np.ones((len(moved), 3, 1))], 2), points.astype(float))
    row, column, offset = (back[:, part, :, None, None].astype(np.float32) for part in range(3))
    place = row * np.arange(batch.height)[:, None] + column * np.arange(batch.width) + offset
    return place[:, 0], place[:, 1]


@corruption((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))
def pixelate(batch: Batch, fraction: float) -> Images:
    """Made smaller to this fraction of the side and larger again, with box filters."""
    small = (int(batch.width * fraction), int(batch.height * fraction))

    def pixelated(pixels: Pixels) -> Pixels:
        reduced = Image.fromarray(pixels).resize(small, Image.Resampling.BOX)
        return np.asarray(reduced.resize((batch.width, batch.height), Image.Resampling.BOX))

    return np.stack([pixelated(pixels) for pixels in batch.pixels]).astype(np.float32) / np.float32(255)


@corruption((80,), (65,), (58,), (50,), (40,))
def jpeg_compression(batch: Batch, quality: int) -> Images:
    """Written as JPEG of this quality and read again."""

    def compressed(pixels: Pixels) -> Pixels:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    return np.stack([compressed(pixels) for pixels in batch.pixels]).astype(np.float32) / np.float32(255)


@corruption((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))
def saturate(batch: Batch, factor: float, plus: float) -> Images:
    """Less colour at severity 1 and 2, more from 3 on.

    Grey images have no saturation to scale: severity 1 to 3 leave them as they are, 4 and 5 tint them
    red, since that is the hue that the colour model gives to grey.
    """
    return scaled_saturation(batch.images, factor, plus)
