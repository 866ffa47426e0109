"""A network's state as one vector: all floating-point parameters and buffers, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ttpfl.errors import ModelError


@dataclass(frozen=True)
class TensorSlice:
    """Position of a tensor in the vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    is_buffer: bool


@dataclass(frozen=True)
class Layout:
    """Positions of a network's tensors in a vector, without integer tensors such as batch counts.

    >>> layout = layout_of(nn.BatchNorm1d(2))
    >>> [(entry.name, entry.start) for entry in layout.entries], layout.length, layout.buffers_from
    ([('weight', 0), ('bias', 2), ('running_mean', 4), ('running_var', 6)], 8, 4)
    """

    entries: tuple[TensorSlice, ...]
    dtype: torch.dtype

    @cached_property
    def length(self) -> int:
        """Length of the vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def buffers_from(self) -> int:
        """Position of the first buffer, after all parameters."""
        return next((entry.start for entry in self.entries if entry.is_buffer), self.length)


def layout_of(model: nn.Module) -> Layout:
    """The layout of a network's state: parameters first, then buffers."""
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            raise ModelError(f"{name} is {parameter.dtype}: only floating-point parameters can be averaged")
    entries = tuple(entry for entry, _ in _tensors(model))
    if not entries:
        raise ModelError(f"{type(model).__name__} has no parameters: there is nothing to train")
    double = any(tensor.dtype == torch.float64 for _, tensor in _tensors(model))
    return Layout(entries, torch.float64 if double else torch.float32)  # half precision is averaged as single


def pack(model: nn.Module, vector: Tensor) -> Tensor:
    """Copy the network's state into the vector."""
    with torch.no_grad():
        for entry, tensor in _tensors(model):
            vector[entry.start : entry.stop].view(entry.shape).copy_(tensor)
    return vector


def unpack(vector: Tensor, model: nn.Module) -> None:
    """Copy the vector into the network, in place."""
    with torch.no_grad():
        for entry, tensor in _tensors(model):
            tensor.copy_(vector[entry.start : entry.stop].view(entry.shape))


def _tensors(model: nn.Module) -> Iterator[tuple[TensorSlice, Tensor]]:
    start = 0
    for is_buffer, tensors in ((False, model.named_parameters()), (True, model.named_buffers())):
        for name, tensor in tensors:
            if tensor.is_floating_point():
                stop = start + tensor.numel()
                yield TensorSlice(name, tensor.shape, start, stop, is_buffer), tensor
                start = stop
