"""Change value and saturation in the HSV colour model, without computing the hue."""

import numpy as np

from ttpfl.data.corruptions.batch import Images

GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)


def grey(images: Images) -> Images:
    """Perceived brightness of each pixel; the last axis has length 1."""
    red, green, blue = (images[..., channel, None] * GREY_WEIGHTS[channel] for channel in range(3))
    return np.asarray(red + green + blue)


def with_value(images: Images, value: Images) -> Images:
    """The same hue and saturation with another value (largest channel); black becomes gray."""
    old = images.max(-1, keepdims=True)
    black = old == 0
    return np.where(black, value, images * (value / np.where(black, 1, old)))


def scaled_saturation(images: Images, factor: float, plus: float) -> Images:
    """The same hue and value with saturation `factor * saturation + plus`, at most 1.

    A gray pixel has no hue; by convention it counts as red, so `plus` tints it.
    """
    value = images.max(-1, keepdims=True)
    depth = value - images  # how far each channel lies below the largest
    span = depth.max(-1, keepdims=True)
    is_grey = span == 0
    saturation = span / np.where(value == 0, 1, value)
    new = np.clip(np.float32(factor) * saturation + np.float32(plus), 0, 1)
    red_side = np.array([0, 1, 1], np.float32)
    share = np.where(is_grey, red_side, depth / np.where(is_grey, 1, span))
    return np.asarray(value * (1 - new * share))
