"""Snow, frost, fog and bright light."""

import numpy as np

from ttpfl.data.corruptions import frost as frosting
from ttpfl.data.corruptions.batch import REFERENCE_SIDE, Batch, Images, as_values
from ttpfl.data.corruptions.colour import grey, with_value
from ttpfl.data.corruptions.plasma import plasma
from ttpfl.data.corruptions.registry import corruption
from ttpfl.data.corruptions.resample import clipped_zoom, line_blur, resize


@corruption(
    (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
def snow(
    batch: Batch,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: float,
    blur_sd: float,
    mix: float,
) -> Images:
    """Flakes in the wind over a whitened image.

    Flakes are made at the benchmark's 32 pixels and then enlarged: with noise at the image's own size, fewer
    would pass the threshold.
    """
    height, width = (round(length / batch.scale) for length in (batch.height, batch.width))
    layer = np.float32(mean) + np.float32(sd) * batch.normal(height, width, 1)
    layer = clipped_zoom(layer, zoom)
    flakes = np.where(layer < threshold, np.float32(0), np.clip(layer, 0, 1))
    flakes = resize(line_blur(flakes, radius, blur_sd, batch.uniform(-135, -45)), batch.height, batch.width)
    white = np.maximum(batch.images, 1.5 * grey(batch.images) + 0.5)
    scene = np.float32(mix) * batch.images + np.float32(1 - mix) * white
    return np.asarray(scene + flakes + flakes[:, ::-1, ::-1])


@corruption((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
def frost(batch: Batch, image_weight: float, frost_weight: float) -> Images:
    """A window with ice crystals: random pieces of a texture (see `corruptions/frost.py`).

    At severities 4 and 5 the image behind darkens, so the mean change is largest at 3, although less and less
    of the image is visible.
    """
    ice = as_values(frosting.pieces(batch))
    return np.float32(image_weight) * batch.images + np.float32(frost_weight) * ice


@corruption((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
def fog(batch: Batch, strength: float, decay: float) -> Images:
    """Clouds over the image, which reduce its contrast."""
    side = REFERENCE_SIDE
    while side < max(batch.height, batch.width):
        side *= 2
    clouds = plasma(batch.uniform(-1, 1, side, side), decay)[..., None]
    clouds = resize(clouds, batch.height, batch.width)
    brightest = batch.images.max((1, 2, 3), keepdims=True)
    contrast = brightest / (brightest + np.float32(strength))
    return np.asarray((batch.images + np.float32(strength) * clouds) * contrast)


@corruption((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))
def brightness(batch: Batch, plus: float) -> Images:
    """More light: `plus` is added to the value of the HSV colour model."""
    value = batch.images.max(-1, keepdims=True)
    return with_value(batch.images, np.clip(value + np.float32(plus), 0, 1))
