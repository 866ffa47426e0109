"""What a twin computes differently from the plain model, wherever in the model it is called.

Running statistics become differentiable, convolutions leave out taps that see nothing but padding,
and images are laid out as the CPU likes them best.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ttpfl import statistics
from ttpfl.convolution import Narrow, conv2d


class Arithmetic(TorchFunctionMode):
    """Replaces a few torch functions while it is open.

    Args:
        narrow: gives the part of a kernel that sees data.
        relaid: the inputs are in another memory layout than the caller's, so that code which
            looks at strides has to be stopped.
    """

    def __init__(self, narrow: Narrow, relaid: bool) -> None:
        super().__init__()
        self._rules: dict[Any, Callable[..., Any]] = {
            torch.conv2d: partial(conv2d, narrow),
            F.batch_norm: statistics.batch_norm,
            torch.batch_norm: statistics.torch_batch_norm,
            F.instance_norm: statistics.instance_norm,
        }
        if relaid:
            # Such maps cannot always be viewed flat; a reshape is a view where one exists.
            self._rules[torch.Tensor.view] = _view
            self._rules |= dict.fromkeys((torch.as_strided, Tensor.as_strided, Tensor.stride), _refuse)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._rules.get(func, func)(*args, **(kwargs or {}))


def _view(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    as_dtype = kwargs or isinstance(args[0], torch.dtype)
    return tensor.view(*args, **kwargs) if as_dtype else tensor.reshape(*args)


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("the model looks at strides")


def channels_last(tensor: Tensor) -> Tensor:
    """A copy of `tensor` in the layout that is about twice as fast for convolutions on a CPU."""
    if tensor.ndim == 4 and tensor.is_floating_point() and tensor.device.type == "cpu":
        return tensor.clone(memory_format=torch.channels_last)
    return tensor.clone()


class DrawWatch(TorchDispatchMode):
    """Notes whether any operation may draw random numbers."""

    seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))
