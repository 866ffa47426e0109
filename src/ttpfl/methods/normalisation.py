"""Normalisation layers: their affine parameters, and BatchNorm with statistics of the batch.

A batch with a single value per channel has no variance; the stored statistics are used then.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttpfl.core.network import describe
from ttpfl.core.statistics import batch_moments
from ttpfl.core.torch_overrides import Rules, with_batch_norm
from ttpfl.errors import MethodError


class BatchNormCall(NamedTuple):
    """The arguments of a call of `F.batch_norm`."""

    input: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5

    def compute(self) -> Tensor:
        """Call torch."""
        return F.batch_norm(*self)


BatchNorm = Callable[[BatchNormCall], Tensor]


def in_place_of_torch(batch_norm: BatchNorm) -> Rules:
    """Rules for a forward pass in which `batch_norm` replaces `F.batch_norm`."""
    return with_batch_norm(lambda *args, **kwargs: batch_norm(BatchNormCall(*args, **kwargs)))


def affine_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Scale and shift of every normalisation layer, by state-dict key; shared parameters are listed once.

    >>> list(affine_parameters(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))))
    ['1.weight', '1.bias']
    """
    layers = {
        path: layer
        for path, layer in model.named_modules()
        if "norm" in type(layer).__name__.lower() and not list(layer.children())
    }
    parameters: dict[int, tuple[str, nn.Parameter]] = {}
    for path, layer in layers.items():
        for name, parameter in layer.named_parameters(recurse=False):
            parameters.setdefault(id(parameter), (f"{path}.{name}" if path else name, parameter))
    if not parameters:
        reason = "its normalisation layers have no scale and shift" if layers else "it has none"
        raise MethodError(
            f"{type(model).__name__} cannot be adapted by its normalisation layers ({reason}): "
            "choose a method that adapts something else"
        )
    return dict(parameters.values())


def lower_affine_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The affine parameters without those of the last quarter of the blocks that have any."""
    parameters = affine_parameters(model)
    block = {spec.name: spec.block for spec in describe(model)}
    blocks = list(dict.fromkeys(block[name] for name in parameters))
    kept = blocks[: len(blocks) - len(blocks) // 4]
    return {name: parameter for name, parameter in parameters.items() if block[name] in kept}


def require_batch_norm(model: nn.Module) -> None:
    """Raise an error if there is no BatchNorm layer with stored statistics."""
    if not any(isinstance(m, _BatchNorm) and m.running_mean is not None for m in model.modules()):
        raise MethodError(
            f"{type(model).__name__} has no BatchNorm layer with stored statistics to adapt: "
            "choose a method that adapts something else"
        )


def batch_statistics(call: BatchNormCall) -> Tensor:
    """BatchNorm with the batch's mean and biased variance, as in training, but without storing them."""
    if call.running_mean is None or call.input.numel() == call.input.shape[1]:
        return call.compute()
    return call._replace(running_mean=None, running_var=None, training=True).compute()


def with_prior(strength: float) -> BatchNorm:
    """BatchNorm whose stored statistics weigh as much as `strength` samples of the batch."""

    def batch_norm(call: BatchNormCall) -> Tensor:
        mean, var = call.running_mean, call.running_var
        if mean is not None and var is not None and not call.training:
            moments = batch_moments(nn.Identity(), call.input)
            if moments is not None:
                share = strength / (strength + len(call.input))
                mean = torch.lerp(moments[0].to(mean.dtype), mean, share)
                var = torch.lerp(moments[1].to(var.dtype), var, share)
        return call._replace(running_mean=mean, running_var=var).compute()

    return batch_norm


def by_depth(model: nn.Module, first: float, last: float) -> BatchNorm:
    """BatchNorm whose stored statistics have a weight that grows exponentially with the layer's depth.

    Means and standard deviations are mixed; the batch's variance is the biased one.

    Args:
        model: The network, whose modules are listed from shallow to deep.
        first: The weight of the stored statistics in the first layer; the batch's have the rest.
        last: The weight in the last layer.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    means = [layer.running_mean for layer in layers if layer.running_mean is not None]
    growth = (last / first) ** (1 / max(len(means) - 1, 1))
    weights = {id(mean): first * growth**depth for depth, mean in enumerate(means)}

    def batch_norm(call: BatchNormCall) -> Tensor:
        mean, var = call.running_mean, call.running_var
        moments = batch_moments(nn.Identity(), call.input) if id(mean) in weights else None
        if mean is None or var is None or moments is None:
            return call.compute()
        weight, count = weights[id(mean)], call.input.numel() // len(mean)
        batch_std = (moments[1] * ((count - 1) / count) + call.eps).sqrt()
        mean = torch.lerp(moments[0].to(mean.dtype), mean, weight)
        std = torch.lerp(batch_std.to(var.dtype), (var + call.eps).sqrt(), weight)
        return call._replace(running_mean=mean, running_var=std**2, eps=0.0).compute()

    return batch_norm


class RobustStatistics:
    """BatchNorm with a moving average of stored and batch statistics (RoTTA).

    Gradients flow through the batch's part, of weight `rate`. `commit` stores the new statistics.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._moved: list[tuple[Tensor, Tensor]] = []

    def __call__(self, call: BatchNormCall) -> Tensor:
        """Replace `F.batch_norm`."""
        x, running_mean, running_var, weight, bias, _, _, eps = call
        if running_mean is None or running_var is None or x.numel() == x.shape[1]:
            return call.compute()
        batch_var, batch_mean = torch.var_mean(x, (0, *range(2, x.ndim)), correction=0)
        mean = torch.lerp(running_mean, batch_mean, self._rate)
        var = torch.lerp(running_var, batch_var, self._rate)
        self._moved += [(running_mean, mean.detach()), (running_var, var.detach())]
        scale = torch.rsqrt(var + eps) if weight is None else weight * torch.rsqrt(var + eps)
        shift = -mean * scale if bias is None else bias - mean * scale
        shape = (1, -1, *[1] * (x.ndim - 2))
        return x * scale.view(shape) + shift.view(shape)

    @torch.no_grad()
    def commit(self) -> None:
        """Store the statistics of the last forward pass."""
        for stored, moved in self._moved:
            stored.copy_(moved)
