"""Normalisation layers: their affine parameters, and BatchNorm with statistics of the batch.

The functions that stand in for `F.batch_norm` have its signature. Where a batch has a single value per
channel, it has no variance: there the stored statistics stay in use, so that a batch of one works.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttpfl.errors import MethodError
from ttpfl.network import describe
from ttpfl.statistics import batch_moments

BatchNorm = Callable[..., Tensor]


def affine_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Scale and shift of every normalisation layer, by state-dict key; shared ones count once, by the first.

    >>> list(affine_parameters(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))))
    ['1.weight', '1.bias']
    """
    layers = {
        path: layer
        for path, layer in model.named_modules()
        if "norm" in type(layer).__name__.lower() and not any(True for _ in layer.children())
    }
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for path, layer in layers.items():
        for name, parameter in layer.named_parameters(recurse=False):
            found.setdefault(id(parameter), (f"{path}.{name}" if path else name, parameter))
    if not found:
        what = "whose layers have no scale and shift" if layers else "of which it has none"
        raise MethodError(
            f"{type(model).__name__} cannot be adapted by its normalisation layers, {what}: "
            "choose a method that adapts something else"
        )
    return dict(found.values())


def lower_affine_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Scale and shift of normalisation layers, but of the last quarter of the blocks that have any."""
    found = affine_parameters(model)
    block = {spec.name: spec.block for spec in describe(model)}
    blocks = list(dict.fromkeys(block[name] for name in found))
    kept = blocks[: len(blocks) - len(blocks) // 4]
    return {name: parameter for name, parameter in found.items() if block[name] in kept}


def require_batch_norm(model: nn.Module) -> None:
    """Raise an error if there is no BatchNorm layer whose statistics could be replaced."""
    if not any(isinstance(m, _BatchNorm) and m.running_mean is not None for m in model.modules()):
        raise MethodError(
            f"{type(model).__name__} has no BatchNorm layer with stored statistics to adapt: "
            "choose a method that adapts something else"
        )


def batch_statistics(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """BatchNorm as in training, by the batch's mean and biased variance, but nothing is stored."""
    if running_mean is None or input.numel() == input.shape[1]:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return F.batch_norm(input, None, None, weight, bias, True, momentum, eps)


def with_prior(strength: float) -> BatchNorm:
    """BatchNorm whose stored statistics count as `strength` samples beside those of the batch."""

    def batch_norm(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if running_mean is not None and running_var is not None and not training:
            moments = batch_moments(nn.Identity(), input)
            if moments is not None:
                share = strength / (strength + len(input))
                running_mean = torch.lerp(moments[0].to(running_mean.dtype), running_mean, share)
                running_var = torch.lerp(moments[1].to(running_var.dtype), running_var, share)
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    return batch_norm


class RobustStatistics:
    """BatchNorm by the stored statistics moved by a share of `rate` towards the batch's (RoTTA).

    The gradient flows through that share. `commit` stores the moved statistics.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._moved: list[tuple[Tensor, Tensor]] = []

    def __call__(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """In place of `F.batch_norm`."""
        if running_mean is None or running_var is None or input.numel() == input.shape[1]:
            return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        batch_var, batch_mean = torch.var_mean(input, (0, *range(2, input.ndim)), correction=0)
        mean = torch.lerp(running_mean, batch_mean, self._rate)
        var = torch.lerp(running_var, batch_var, self._rate)
        self._moved += [(running_mean, mean.detach()), (running_var, var.detach())]
        scale = torch.rsqrt(var + eps) if weight is None else weight * torch.rsqrt(var + eps)
        shift = -mean * scale if bias is None else bias - mean * scale
        shape = (1, -1, *[1] * (input.ndim - 2))
        return input * scale.view(shape) + shift.view(shape)

    @torch.no_grad()
    def commit(self) -> None:
        """Store the statistics of the last pass."""
        for stored, moved in self._moved:
            stored.copy_(moved)
