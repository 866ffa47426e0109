"""Augmented views of one image, and BatchNorm on them; for MEMO."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttpfl.core.statistics import at_least_float32, batch_moments


def augmented(image: Tensor, count: int, padding: int, random: np.random.Generator) -> Tensor:
    """A batch of random crops out of the image with mirrored borders, flipped with probability 1/2.

    >>> row = torch.tensor([[[1.0, 2.0, 3.0]]])
    >>> views = augmented(row, 20, 1, np.random.default_rng(0))
    >>> sorted(set(map(tuple, views[:, 0, 0].tolist())))
    [(1.0, 1.0, 2.0), (1.0, 2.0, 3.0), (2.0, 1.0, 1.0), (2.0, 3.0, 3.0), (3.0, 2.0, 1.0), (3.0, 3.0, 2.0)]
    """
    height, width = image.shape[1:]
    rows, columns = (
        torch.from_numpy(np.pad(np.arange(size), padding, mode="symmetric")).to(image.device)
        for size in (height, width)
    )
    padded = image[:, rows][:, :, columns]
    corners = random.integers(0, 2 * padding, (count, 2), endpoint=True).tolist()
    crops = torch.stack([padded[:, top : top + height, left : left + width] for top, left in corners])
    flips = torch.from_numpy(random.random(count) < 0.5).to(image.device)
    return torch.where(flips[:, None, None, None], crops.flip(3), crops)


def marginal_entropy(logits: Tensor) -> Tensor:
    """The entropy of the mean prediction.

    >>> round(marginal_entropy(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).exp().item(), 4)
    2.0
    """
    log_mean = at_least_float32(logits).log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()


def mix_statistics(model: nn.Module, share: float) -> None:
    """Make BatchNorm mix its stored statistics with those of its input, which get the weight `share`."""
    for layer in model.modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
            _mix_in(layer, share)


def _mix_in(layer: _BatchNorm, share: float) -> None:
    stored: list[Tensor] = [layer.running_mean, layer.running_var]  # type: ignore[list-item]

    def mix(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        moments = batch_moments(layer, args[0].detach()) or stored
        layer.running_mean, layer.running_var = (
            torch.lerp(old, new.to(old), share) for old, new in zip(stored, moments, strict=True)
        )

    def restore(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        layer.running_mean, layer.running_var = stored

    layer.register_forward_pre_hook(mix)
    layer.register_forward_hook(restore)
