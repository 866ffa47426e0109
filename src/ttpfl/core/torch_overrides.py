"""What a fast pass computes differently from the plain model, wherever in the model it is called.

Convolutions leave out taps that see nothing but padding, images are channels last, and running statistics
can be made differentiable.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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
    """Notes in `draws` whether the model calls anything that may draw random numbers."""

    draws = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.draws = self.draws or bool(_DRAWING.fullmatch(getattr(func, "__name__", "")))
        return func(*args, **(kwargs or {}))


# Functions that draw random numbers, some of them only in training mode.
_DRAWING = re.compile(
    r"rand(n|int)?(_like)?|randperm|bernoulli_?|(multi|bi)nomial|poisson|normal_?|log_normal_|uniform_|random_"
    r"|exponential_|cauchy_|geometric_|rrelu_?|dropout(_|[123]d)?|(feature_)?(alpha_)?dropout|gumbel_softmax"
    r"|fractional_max_pool[23]d|lstm|gru|rnn_(tanh|relu)|scaled_dot_product_attention"
    r"|multi_head_attention_forward"
)


class FastLayout(TorchFunctionMode):
    """Short cuts for convolutions, and inputs in another memory layout, while it is open.

    Args:
        channels_last: the inputs are in that layout, which may not be the caller's, so that code which
            looks at strides has to be stopped.
        narrow: gives the part of a kernel that sees data.
        rules: what else to call in place of torch's functions.
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
            # Such maps cannot always be viewed flat; a reshape is a view where one exists.
            self._rules[torch.Tensor.view] = _view
            self._rules |= dict.fromkeys((torch.as_strided, Tensor.as_strided, Tensor.stride), _refuse)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._rules.get(func, func)(*args, **(kwargs or {}))


def with_batch_norm(batch_norm: Callable[..., Tensor]) -> Rules:
    """The rules that put another function in the place of `F.batch_norm`."""
    return {
        F.batch_norm: batch_norm,
        torch.batch_norm: partial(statistics.torch_batch_norm, batch_norm),
    }


DIFFERENTIABLE_STATISTICS: Rules = {
    **with_batch_norm(statistics.batch_norm),
    F.instance_norm: statistics.instance_norm,
}
"""The rules with which logits are differentiable in running statistics."""


def _view(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    as_dtype = kwargs or isinstance(args[0], torch.dtype)
    return tensor.view(*args, **kwargs) if as_dtype else tensor.reshape(*args)


def _group_norm(func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    # In the channels_last layout, torch (2.13) crashes the process in the backward pass on a CPU where
    # the scale needs a gradient and the input does not.
    return func(input if input.requires_grad else input.contiguous(), *args, **kwargs)


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("the model looks at strides")


def channels_last(tensor: Tensor) -> Tensor:
    """A copy of `tensor` in the layout that is about twice as fast for convolutions on a CPU."""
    if tensor.ndim == 4 and tensor.is_floating_point() and tensor.device.type == "cpu":
        return tensor.clone(memory_format=torch.channels_last)
    return tensor.clone()
