"""Random changes to pictures that a client trains with; they are (N, 3, height, width), from 0 to 1."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

GRAY = torch.tensor([0.299, 0.587, 0.114])  # what eyes make of red, green and blue (ITU-R BT.601)
TRIES = 10  # shapes of a crop that are drawn until one lies in the picture


def augment(name: str, pictures: Tensor) -> Tensor:
    """Pictures changed at random, by torch's generator.

    >>> augment("flips", torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 3, 8, 8])
    >>> augment("rotations", torch.zeros(2, 3, 8, 8))
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown augmentation 'rotations'. Available: domainbed, flips
    """
    # One number of the common generator decides all, so that what comes after does not repeat these draws.
    generator = Generator().manual_seed(int(torch.randint(2**62, ())))
    return find("augmentation", name, AUGMENTATIONS, DataError)(pictures, generator)


def domainbed(pictures: Tensor, generator: Generator) -> Tensor:
    """As DomainBed trains: crops and flips, colours, and every tenth picture in gray.

    Constants: Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
    """
    pictures = cropped(pictures, (0.7, 1.0), (3 / 4, 4 / 3), generator)
    pictures = jittered(flipped(pictures, generator), 0.3, generator)
    chosen = _uniform(len(pictures), 0.0, 1.0, generator) < 0.1
    return torch.where(chosen.view(-1, 1, 1, 1), gray(pictures), pictures)


def flipped(pictures: Tensor, generator: Generator) -> Tensor:
    """Half of them mirrored, left to right."""
    chosen = _uniform(len(pictures), 0.0, 1.0, generator) < 0.5
    return torch.where(chosen.view(-1, 1, 1, 1), pictures.flip(3), pictures)


AUGMENTATIONS: dict[str, Callable[[Tensor, Generator], Tensor]] = {"domainbed": domainbed, "flips": flipped}


def cropped(
    pictures: Tensor, area: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> Tensor:
    """A part of each, of random area and width to height, enlarged to the whole."""
    count, (height, width) = len(pictures), pictures.shape[2:]
    areas = _uniform((TRIES, count), *area, generator)
    ratios = _uniform((TRIES, count), math.log(ratio[0]), math.log(ratio[1]), generator).exp()
    wide, high = (areas * ratios * height / width).sqrt(), (areas / ratios * width / height).sqrt()
    fits = (wide <= 1) & (high <= 1)
    first, none = fits.int().argmax(0, keepdim=True), ~fits.any(0)
    # Where no shape fits, the largest part that is neither too wide nor too high.
    wide = wide.gather(0, first)[0].masked_fill(none, min(1.0, ratio[1] * height / width))
    high = high.gather(0, first)[0].masked_fill(none, min(1.0, width / (ratio[0] * height)))
    across, down = (_uniform(count, -1.0, 1.0, generator) * (1 - side) for side in (wide, high))
    zero = torch.zeros(count)
    maps = torch.stack([wide, zero, across, zero, high, down], 1).view(count, 2, 3)
    grid = affine_grid(maps, list(pictures.shape), align_corners=False)
    return grid_sample(pictures, grid, padding_mode="border", align_corners=False)


def jittered(pictures: Tensor, strength: float, generator: Generator) -> Tensor:
    """Brightness, contrast, saturation and hue of each changed by up to `strength`, in a random order."""
    count = len(pictures)
    factors = 1 + _uniform((len(COLOURS), count), -strength, strength, generator)
    order = torch.rand(count, len(COLOURS), generator=generator).argsort(1)
    pictures = pictures.clone()
    for step in range(len(COLOURS)):
        for number, change in enumerate(COLOURS):
            chosen = (order[:, step] == number).nonzero()[:, 0]
            pictures[chosen] = change(pictures[chosen], factors[number, chosen].view(-1, 1, 1, 1))
    return pictures


def gray(pictures: Tensor) -> Tensor:
    """Without colours, but still with three channels."""
    return (pictures * GRAY.view(1, 3, 1, 1)).sum(1, keepdim=True).expand_as(pictures)


def brightness(pictures: Tensor, factor: Tensor) -> Tensor:
    """Between black (0), as it is (1) and beyond."""
    return (pictures * factor).clamp(0, 1)


def contrast(pictures: Tensor, factor: Tensor) -> Tensor:
    """Between its mean gray (0), as it is (1) and beyond."""
    mean = gray(pictures).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(pictures), pictures, factor).clamp(0, 1)


def saturation(pictures: Tensor, factor: Tensor) -> Tensor:
    """Between gray (0), as it is (1) and beyond."""
    return torch.lerp(gray(pictures), pictures, factor).clamp(0, 1)


def hue(pictures: Tensor, factor: Tensor) -> Tensor:
    """Colours turned by `factor` - 1 of the circle of colours; how bright and how colourful, stays."""
    high, low = pictures.amax(1), pictures.amin(1)
    span = high - low
    red, green, blue = pictures.unbind(1)
    safe = span.where(span > 0, 1)
    sixth = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    turned = sixth[:, None] + 6 * (factor - 1)
    # Where on the circle each channel falls from its highest to its lowest value.
    place = (turned + torch.tensor([5.0, 3.0, 1.0]).view(1, 3, 1, 1)) % 6
    fall = torch.minimum(place, 4 - place).clamp(0, 1)
    return high[:, None] - span[:, None] * fall


COLOURS = (brightness, contrast, saturation, hue)


def _uniform(shape: int | tuple[int, ...], low: float, high: float, generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low
