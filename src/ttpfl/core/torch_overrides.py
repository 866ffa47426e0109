"""Replacements of torch functions during a fast pass.

Convolutions skip taps that only see padding, images have the channels-last layout, and running statistics can
be differentiable.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ttpfl.core import statistics
from ttpfl.core.convolution import Narrow, conv2d, part_that_sees_data

Rules = Mapping[Any, Callable[..., Any]]
NO_RULES: Rules = {}


class DrawWatch(TorchFunctionMode):
    """Records in `draws` whether the model calls any function that may draw random numbers."""

    draws = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws = self.draws or bool(_DRAWING.fullmatch(getattr(func, "__name__", "")))
        return func(*args, **(kwargs or {}))


# Functions that draw random numbers, some only in training mode.
_DRAWING = re.compile(
    r"rand(n|int)?(_like)?|randperm|bernoulli_?|(multi|bi)nomial|poisson|normal_?|log_normal_|uniform_|random_"
    r"|exponential_|cauchy_|geometric_|rrelu_?|dropout(_|[123]d)?|(feature_)?(alpha_)?dropout|gumbel_softmax"
    r"|fractional_max_pool[23]d|lstm|gru|rnn_(tanh|relu)|scaled_dot_product_attention"
    r"|multi_head_attention_forward"
)


class FastLayout(TorchFunctionMode):
    """Use faster convolutions, and accept inputs in the channels-last layout.

    Args:
        channels_last: whether the inputs have this layout; code that depends on strides then raises an error.
        narrow: returns the part of a kernel that sees data.
        rules: further replacements of torch functions.
    """

    def __init__(self, channels_last: bool, narrow: Narrow = part_that_sees_data, rules: Rules = NO_RULES):
        super().__init__()
        self._rules: dict[Any, Callable[..., Any]] = {
            torch.conv2d: partial(conv2d, narrow),
            F.group_norm: partial(_group_norm, F.group_norm),
            torch.group_norm: partial(_group_norm, torch.group_norm),
            **rules,
        }
        if channels_last:
            # These maps do not always have a flat view; a reshape is a view if there is one.
            self._rules[torch.Tensor.view] = _view
            self._rules |= dict.fromkeys((torch.as_strided, Tensor.as_strided, Tensor.stride), _refuse)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._rules.get(func, func)(*args, **(kwargs or {}))


def with_batch_norm(batch_norm: Callable[..., Tensor]) -> Rules:
    """Rules that replace `F.batch_norm` and `torch.batch_norm` by another function."""
    return {F.batch_norm: batch_norm, torch.batch_norm: partial(statistics.torch_batch_norm, batch_norm)}


DIFFERENTIABLE_STATISTICS: Rules = {
    **with_batch_norm(statistics.batch_norm),
    F.instance_norm: statistics.instance_norm,
}
"""Rules that make logits differentiable in running statistics."""


def _view(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    as_dtype = kwargs or isinstance(args[0], torch.dtype)
    return tensor.view(*args, **kwargs) if as_dtype else tensor.reshape(*args)


def _group_norm(func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    # In the channels-last layout on a CPU, torch (2.13) crashes in the backward pass if the scale needs a
    # gradient and the input does not.
    return func(input if input.requires_grad else input.contiguous(), *args, **kwargs)


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("the model depends on strides")


def channels_last(tensor: Tensor) -> Tensor:
    """Copy `tensor` to the layout in which convolutions on a CPU are about twice as fast."""
    if tensor.ndim == 4 and tensor.is_floating_point() and tensor.device.type == "cpu":
        return tensor.clone(memory_format=torch.channels_last)
    return tensor.clone()
