"""The last layer of a network, if it is linear: its gradient in closed form, and logits of moved tensors.

If nothing before the last layer moves, or only statistics, then no backward pass is needed; and in the first
case the features, which the layer receives, are computed once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32


class Call(NamedTuple):
    """One call of a layer."""

    features: Tensor
    output: Tensor
    versions: tuple[int, int]
    """Of both tensors, to notice if the network changes them in place afterwards."""

    @classmethod
    def of(cls, features: Tensor, output: Tensor) -> "Call":
        """A call that has just been made."""
        return cls(features, output, (features._version, output._version))

    @property
    def unchanged(self) -> bool:
        """Whether the network left both tensors as they were."""
        return (self.features._version, self.output._version) == self.versions

    def answers(self, features: Tensor) -> bool:
        """Whether the layer would return the same output again for these features."""
        ours = self.features
        alike = ours.stride() == features.stride() and ours.dtype == features.dtype
        return self.unchanged and alike and torch.equal(ours, features)

    def returned(self, logits: Tensor) -> bool:
        """Whether the network returned what the layer returned, in the same shape and unchanged."""
        same = logits.data_ptr() == self.output.data_ptr() and logits.dtype == self.output.dtype
        same = (
            same
            and logits.ndim > 1
            and logits.shape == self.output.shape
            and logits.stride() == self.output.stride()
        )
        return same and self.unchanged


class LastLayer(NamedTuple):
    """A linear layer that may be the last of its network; `returned` of its call in a pass tells."""

    name: str
    layer: nn.Linear

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The weight, and the bias if there is one, under their names in the network."""
        prefix, own = f"{self.name}." if self.name else "", self.layer._parameters.items()
        return {prefix + key: tensor for key, tensor in own if tensor is not None}

    @contextmanager
    def watching(self, calls: list[Call]) -> Iterator[None]:
        """While open, record every call of the layer."""

        def record(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            calls.extend(Call.of(x, output) for x in args[:1])

        handle = self.layer.register_forward_hook(record)
        try:
            yield
        finally:
            handle.remove()

    def gradients(self, features: Tensor, slope: Tensor) -> dict[str, Tensor]:
        """Gradients of weight and bias, given the derivative of the objective in the logits.

        >>> last = LastLayer("head", nn.Linear(3, 2, bias=False))
        >>> last.gradients(torch.ones(5, 3), torch.ones(5, 2))
        {'head.weight': tensor([[5., 5., 5.],
                [5., 5., 5.]])}
        """
        kind = features.device.type
        # Entering autocast is slow.
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            slope = at_least_float32(slope).flatten(0, -2)
            weight = slope.T @ at_least_float32(features).to(slope.dtype).flatten(0, -2)
        return dict(zip(self.tensors, (weight, slope.sum(0)), strict=False))

    def logits(self, features: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The layer's output with moved tensors."""
        weight, *bias = (moved.get(name, tensor) for name, tensor in self.tensors.items())
        return F.linear(features, weight, *bias)


def linear_layers(model: nn.Module) -> list[LastLayer]:
    """Plain linear layers that share no tensor with other layers, in the order of the network.

    >>> [last.name for last in linear_layers(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))]
    ['0', '2']
    """
    uses: dict[int, int] = {}
    for layer in model.modules():
        for tensor in layer._parameters.values():
            uses[id(tensor)] = uses.get(id(tensor), 0) + 1
    return [
        LastLayer(name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
        and type(layer).forward is nn.Linear.forward
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        and {"weight"} <= layer._parameters.keys() <= {"weight", "bias"}
        and all(tensor is None or uses[id(tensor)] == 1 for tensor in layer._parameters.values())
    ]


def owner_of(model: nn.Module, names: Collection[str]) -> LastLayer | None:
    """The linear layer that owns all the named tensors, if there is one."""
    paths = {name.rpartition(".")[0] for name in names}
    if len(paths) != 1:
        return None
    return next((last for last in linear_layers(model) if last.name in paths), None)


def last_layer(model: nn.Module, logits: Callable[[], Tensor]) -> LastLayer | None:
    """The linear layer whose output is the logits in one pass, if there is one.

    Args:
        model: the network.
        logits: computes them by one pass of `model`.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> last_layer(model, lambda: model(torch.ones(5, 2, 2))).name
    '3'
    >>> last_layer(model, lambda: model(torch.ones(5, 2, 2)).softmax(1)) is None
    True
    """
    watched = [(last, list[Call]()) for last in linear_layers(model)]
    with ExitStack() as hooks:
        for last, calls in watched:
            hooks.enter_context(last.watching(calls))
        found = logits()
    return next((last for last, calls in watched if calls and calls[-1].returned(found)), None)
