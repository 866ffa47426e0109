"""Random colour, affine, blur and noise augmentations for images of unknown normalisation."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

GREY = (0.299, 0.587, 0.114)


def is_images(batch: object) -> bool:
    """Whether a batch is one tensor of images."""
    return isinstance(batch, Tensor) and batch.ndim == 4 and batch.is_floating_point()


def strongly_augmented(images: Tensor, generator: Generator) -> Tensor:
    """Augment brightness, contrast, saturation, hue, gamma, position, blur and noise of each image.

    The ranges are those of CoTTA and RoTTA for images from 0 to 1. Each channel is first scaled to that range
    by its minimum and maximum in the batch, and scaled back at the end. Other inputs are returned unchanged.
    """
    if not is_images(images):
        return images
    minimum = images.amin((0, 2, 3), keepdim=True)
    span = (images.amax((0, 2, 3), keepdim=True) - minimum).clamp_min(torch.finfo(images.dtype).tiny)

    def draw(low: float, high: float) -> Tensor:
        unit = torch.rand(len(images), generator=generator).to(images)
        return low + (high - low) * unit

    ranges = [(1 - width, 1 + width) for width in (0.4, 0.3, 0.5, 0.3)] + [(-0.06, 0.06)]
    colour = [draw(*range_)[:, None, None, None] for range_ in ranges]
    x = _recoloured((images - minimum) / span, *colour)
    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0).to(images)
    shift = torch.stack([draw(-1, 1), draw(-1, 1)], 1) / 8  # a sixteenth of the size
    x = _placed(x, draw(-math.pi / 12, math.pi / 12), draw(0.9, 1.1), flip, shift)
    x = _blurred(x, draw(0.001, 0.5))
    noise = torch.randn(x.shape, generator=generator).to(x)
    return (x + 0.005 * noise).clamp(0, 1) * span + minimum


def _recoloured(
    x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, gamma: Tensor, hue: Tensor
) -> Tensor:
    x = (x * brightness).clamp(0, 1)
    mean = _grey(x).mean((1, 2, 3), keepdim=True)
    x = (mean + contrast * (x - mean)).clamp(0, 1)
    grey = _grey(x) if x.shape[1] == len(GREY) else x
    x = (grey + saturation * (x - grey)).clamp(0, 1)
    if x.shape[1] == len(GREY):
        x = rotate_hue(x, hue)
    return x.clamp(1e-8, 1) ** gamma


def rotate_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate RGB colours about the grey axis; a third of a turn maps red to green.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> rotate_hue(red, torch.tensor(1 / 3)).flatten().abs().round(decimals=4)
    tensor([0., 1., 0.])
    """
    angle, mean = 2 * math.pi * turns, x.mean(1, keepdim=True)
    across = (x.roll(1, 1) - x.roll(-1, 1)) / math.sqrt(3)
    return mean + angle.cos() * (x - mean) + angle.sin() * across


def _placed(x: Tensor, angle: Tensor, scale: Tensor, flip: Tensor, shift: Tensor) -> Tensor:
    cos, sin = angle.cos() / scale, angle.sin() / scale
    rows = [torch.stack(row, 1) for row in ((flip * cos, -sin, shift[:, 0]), (flip * sin, cos, shift[:, 1]))]
    grid = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != len(GREY):
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(GREY)[:, None, None]).sum(1, keepdim=True)


def _blurred(x: Tensor, sigma: Tensor) -> Tensor:
    n, channels, height, width = x.shape
    kernel = torch.softmax(-((torch.arange(-2, 3).to(x) / sigma[:, None]) ** 2) / 2, 1)
    kernel = kernel.repeat_interleave(channels, 0)[:, None, None]
    x = F.pad(x.reshape(1, n * channels, height, width), (2, 2, 2, 2), mode="replicate")
    x = F.conv2d(F.conv2d(x, kernel, groups=n * channels), kernel.transpose(2, 3), groups=n * channels)
    return x.view(n, channels, height, width)
