"""Running statistics of normalisation layers: their values on a batch, and their gradient.

A layer's *rule* computes the batch statistic for each of its running buffers. Rules are looked up by layer
type; `statistics_rule` registers one.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

LONGEST_SUM = 4096
"""Numbers that may be added one by one; the relative rounding error is then about 1e-6."""

Rule = Callable[[nn.Module, Tensor], tuple[Tensor, ...] | None]


class StatisticsRule(NamedTuple):
    """How the running buffers of a layer type depend on the layer's input."""

    buffers: tuple[str, ...]
    nonnegative: tuple[str, ...]
    compute: Rule


_RULES: dict[type[nn.Module], StatisticsRule] = {}


def statistics_rule(
    *layers: type[nn.Module],
    buffers: tuple[str, ...] = ("running_mean", "running_var"),
    nonnegative: tuple[str, ...] = ("running_var",),
) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule for these layer types and their subclasses.

    The function receives the layer and its input. It returns one batch statistic per buffer, in order, or
    None if the batch is too small (the buffers then stay unchanged). Buffers in `nonnegative` are clamped
    at zero when they adapt. The layer's evaluation-mode forward pass must be differentiable in its buffers;
    torch's layers are handled automatically.

    >>> class RmsNorm(nn.Module):
    ...     def __init__(self, features):
    ...         super().__init__()
    ...         self.register_buffer("running_square", torch.ones(features))
    ...     def forward(self, x):
    ...         return x * torch.rsqrt(self.running_square + 1e-5)
    >>> @statistics_rule(RmsNorm, buffers=("running_square",), nonnegative=("running_square",))
    ... def rms_statistics(layer, x):
    ...     return (x.square().mean(0),)
    >>> import ttpfl
    >>> ttpfl.Rates.zeros(nn.Sequential(nn.Linear(4, 4), RmsNorm(4), nn.Linear(4, 2))).names[2]
    '1.running_square'
    """

    def register(compute: Rule) -> Rule:
        for layer in layers:
            _RULES[layer] = StatisticsRule(buffers, nonnegative, compute)
        return compute

    return register


def rule_for(layer: nn.Module) -> StatisticsRule | None:
    """The rule of the nearest registered class among the layer's bases."""
    return next((_RULES[base] for base in type(layer).__mro__ if base in _RULES), None)


def owners(model: nn.Module, names: Collection[str]) -> Iterator[tuple[nn.Module, StatisticsRule, str]]:
    """Layers that own any of the named statistics, with their rules and the prefixes of their buffers."""
    for path, layer in model.named_modules():
        rule, prefix = rule_for(layer), f"{path}." if path else ""
        if rule and any(prefix + buffer in names for buffer in rule.buffers):
            yield layer, rule, prefix


@torch.no_grad()
def record_statistics(
    rule: StatisticsRule,
    prefix: str,
    recorded: dict[str, list[Tensor]],
    layer: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Before a call of `layer`, add the statistics of its input to those `recorded` so far."""
    x = args[0] if args else next(iter(kwargs.values()))
    for buffer, value in zip(rule.buffers, rule.compute(layer, x.detach()) or (), strict=False):
        if prefix + buffer in recorded:
            recorded[prefix + buffer].append(value)


@statistics_rule(_BatchNorm)
def batch_moments(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and unbiased variance over batch and space, per channel."""
    found = _moments_of_columns(x) if _channels_are_columns(x) else None
    if found is not None and not _cancelled(*found):
        return found
    return _moments(x, (0, *range(2, x.ndim)))


@statistics_rule(_InstanceNorm)
def instance_moments(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and unbiased variance of each image, averaged over the batch, per channel."""
    moments = _moments(x, tuple(range(2, x.ndim)))
    return moments and (moments[0].mean(0), moments[1].mean(0))


def _moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
    # Two passes: as exact as torch.var_mean, and several times faster on a CPU.
    count = math.prod(x.shape[dim] for dim in dims)
    if count < 2:
        return None
    x = at_least_float32(x)
    mean = x.mean(dims, keepdim=True)
    variance = (x - mean).square_().sum(dims) / (count - 1)
    return mean.squeeze(dims), variance


def _channels_are_columns(x: Tensor) -> bool:
    """Whether memory is a table with one column per channel, for which torch has a kernel on a CPU."""
    layout = {2: torch.contiguous_format, 4: torch.channels_last}.get(x.ndim)
    if layout is None or not x.is_contiguous(memory_format=layout) or not x.numel():
        return False
    short = x.numel() // x.shape[1] <= _parts(x) * LONGEST_SUM
    return short and x.device.type == "cpu" and not x.requires_grad


def _parts(x: Tensor) -> int:
    """Into how many parts long columns of maps can be split."""
    return x.shape[3] if x.ndim == 4 and x.numel() // x.shape[1] > LONGEST_SUM else 1


def _cancelled(mean: Tensor, variance: Tensor) -> bool:
    """Whether a mean is so large that the kernel's variance has lost its digits."""
    return bool((mean.square() > 1e8 * variance).any())


def _moments_of_columns(x: Tensor) -> tuple[Tensor, Tensor] | None:
    """`_moments` per channel by the kernel of batch normalisation, in less than half the time."""
    count, channels = x.numel() // x.shape[1], x.shape[1]
    if count < 2:
        return None
    # The kernel adds up a column number by number. Long ones are split, so that rounding errors stay small.
    parts = _parts(x)
    table = (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).reshape(-1, parts * channels)
    mean, variance = torch.batch_norm_update_stats(at_least_float32(table), None, None, 0.0)
    if parts > 1:
        means = mean.view(parts, channels)
        mean = means.mean(0)
        variance = variance.view(parts, channels).mean(0) + (means - mean).square_().mean(0)
    return mean, variance * (count / (count - 1))


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return `tensor`, converted to float32 if it has half precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


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
    """`F.batch_norm`, bit for bit, but differentiable in the running statistics.

    With y = weight * (x - mean) / sqrt(var + eps) + bias, the derivative in `mean` is the one in `bias` times
    -weight / sqrt(var + eps), and the derivative in `var` is the one in `weight` times
    -weight / (2 (var + eps)). So zeros that carry the gradient are added to `bias` and `weight`.
    """
    if running_mean is not None and running_var is not None:
        mean, var = running_mean.detach(), running_var.detach()
        # In training mode the output does not depend on the running statistics.
        if not training and (running_mean.requires_grad or running_var.requires_grad):
            scale = torch.ones_like(var) if weight is None else weight
            shift = torch.zeros_like(mean) if bias is None else bias
            slope = scale.detach()
            bias = shift - slope * torch.rsqrt(var + eps) * (running_mean - mean)
            weight = scale - slope / (2 * (var + eps)) * (running_var - var)
        running_mean, running_var = mean, var
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def torch_batch_norm(
    batch_norm: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Call `batch_norm` with the arguments of `torch.batch_norm`, which have another order."""
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.instance_norm`; with running statistics it is the same as batch normalisation."""
    if use_input_stats:
        return F.instance_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)
    return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
