"""Random augmentation of training images, which are (N, 3, height, width) with values from 0 to 1."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

GRAY = torch.tensor([0.299, 0.587, 0.114])  # perceived brightness of red, green and blue (ITU-R BT.601)
TRIES = 10  # shapes drawn for a crop, until one fits into the image


def augment(name: str, images: Tensor) -> Tensor:
    """Augment images with torch's global generator.

    >>> augment("flips", torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 3, 8, 8])
    >>> augment("rotations", torch.zeros(2, 3, 8, 8))
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown augmentation 'rotations'. Available: domainbed, flips
    """
    # A single draw from the global generator, whatever the augmentation: later draws do not depend on it.
    generator = Generator().manual_seed(int(torch.randint(2**62, ())))
    return find("augmentation", name, AUGMENTATIONS, DataError)(images, generator)


def domainbed(images: Tensor, generator: Generator) -> Tensor:
    """The augmentation of DomainBed: crops, flips, colour jitter, and one image in ten in gray.

    Constants: Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
    """
    images = cropped(images, (0.7, 1.0), (3 / 4, 4 / 3), generator)
    images = jittered(flipped(images, generator), 0.3, generator)
    chosen = _uniform(len(images), 0.0, 1.0, generator) < 0.1
    return torch.where(chosen.view(-1, 1, 1, 1), gray(images), images)


def flipped(images: Tensor, generator: Generator) -> Tensor:
    """Flip about half of the images left to right."""
    chosen = _uniform(len(images), 0.0, 1.0, generator) < 0.5
    return torch.where(chosen.view(-1, 1, 1, 1), images.flip(3), images)


AUGMENTATIONS: dict[str, Callable[[Tensor, Generator], Tensor]] = {"domainbed": domainbed, "flips": flipped}


def cropped(
    images: Tensor, area: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> Tensor:
    """Crop each image to a random area and aspect ratio, and resize the crop to full size."""
    count, (height, width) = len(images), images.shape[2:]
    areas = _uniform((TRIES, count), *area, generator)
    ratios = _uniform((TRIES, count), math.log(ratio[0]), math.log(ratio[1]), generator).exp()
    wide, high = (areas * ratios * height / width).sqrt(), (areas / ratios * width / height).sqrt()
    fits = (wide <= 1) & (high <= 1)
    first, none = fits.int().argmax(0, keepdim=True), ~fits.any(0)
    # Where no shape fits: the largest crop within the allowed ratios.
    wide = wide.gather(0, first)[0].masked_fill(none, min(1.0, ratio[1] * height / width))
    high = high.gather(0, first)[0].masked_fill(none, min(1.0, width / (ratio[0] * height)))
    across, down = (_uniform(count, -1.0, 1.0, generator) * (1 - side) for side in (wide, high))
    zero = torch.zeros(count)
    maps = torch.stack([wide, zero, across, zero, high, down], 1).view(count, 2, 3)
    grid = affine_grid(maps, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def jittered(images: Tensor, strength: float, generator: Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image by up to `strength`, in random order."""
    count = len(images)
    factors = 1 + _uniform((len(COLOURS), count), -strength, strength, generator)
    order = torch.rand(count, len(COLOURS), generator=generator).argsort(1)
    images = images.clone()
    for step in range(len(COLOURS)):
        for number, change in enumerate(COLOURS):
            chosen = (order[:, step] == number).nonzero()[:, 0]
            images[chosen] = change(images[chosen], factors[number, chosen].view(-1, 1, 1, 1))
    return images


def gray(images: Tensor) -> Tensor:
    """Gray images that still have three channels."""
    return (images * GRAY.view(1, 3, 1, 1)).sum(1, keepdim=True).expand_as(images)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between black (0) and the image (1), or extrapolate."""
    return (images * factor).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between the mean gray (0) and the image (1), or extrapolate."""
    mean = gray(images).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, factor).clamp(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between the gray image (0) and the image (1), or extrapolate."""
    return torch.lerp(gray(images), images, factor).clamp(0, 1)


def hue(images: Tensor, factor: Tensor) -> Tensor:
    """Rotate the hue by `factor` - 1 turns of the colour wheel; saturation and value stay."""
    high, low = images.amax(1), images.amin(1)
    span = high - low
    red, green, blue = images.unbind(1)
    safe = span.where(span > 0, 1)
    sixth = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    rotated = sixth[:, None] + 6 * (factor - 1)
    # Where on the colour wheel each channel falls from its highest to its lowest value.
    place = (rotated + torch.tensor([5.0, 3.0, 1.0]).view(1, 3, 1, 1)) % 6
    return high[:, None] - span[:, None] * torch.minimum(place, 4 - place).clamp(0, 1)


COLOURS = (brightness, contrast, saturation, hue)


def _uniform(shape: int | tuple[int, ...], low: float, high: float, generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low
