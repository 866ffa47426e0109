"""A network's state as one vector: all floating-point parameters and buffers, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ttpfl.errors import ModelError


@dataclass(frozen=True)
class TensorSlice:
    """Where a tensor is in the vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    is_buffer: bool


@dataclass(frozen=True)
class Layout:
    """How a network's state lies in a vector; integers, such as a count of batches, are not in it.

    >>> layout = layout_of(nn.BatchNorm1d(2))
    >>> [(entry.name, entry.start) for entry in layout.entries], layout.length, layout.buffers_from
    ([('weight', 0), ('bias', 2), ('running_mean', 4), ('running_var', 6)], 8, 4)
    """

    entries: tuple[TensorSlice, ...]
    dtype: torch.dtype

    @cached_property
    def length(self) -> int:
        """Numbers in the vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def buffers_from(self) -> int:
        """Where the parameters end and the buffers begin."""
        return next((entry.start for entry in self.entries if entry.is_buffer), self.length)

    def parts(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The tensors in the vector, by name, as views of it."""
        for entry in self.entries:
            yield entry.name, vector[entry.start : entry.stop].view(entry.shape)


def layout_of(model: nn.Module) -> Layout:
    """The layout for a network: parameters first, then buffers."""
    entries: list[TensorSlice] = []
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            raise ModelError(f"{name} is {parameter.dtype}: only floating-point parameters can be averaged")
    dtypes = {torch.float32}  # at least: halves are averaged as singles
    for name, tensor, is_buffer in _floating(model):
        start = entries[-1].stop if entries else 0
        entries.append(TensorSlice(name, tensor.shape, start, start + tensor.numel(), is_buffer))
        dtypes.add(tensor.dtype)
    if not entries:
        raise ModelError(f"{type(model).__name__} has no parameters: there is nothing to train")
    return Layout(tuple(entries), torch.float64 if torch.float64 in dtypes else torch.float32)


def pack(model: nn.Module, vector: Tensor) -> Tensor:
    """Copy the network's state into the vector."""
    with torch.no_grad():
        start = 0
        for _, tensor, _ in _floating(model):
            vector[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
            start += tensor.numel()
    return vector


def unpack(vector: Tensor, model: nn.Module) -> None:
    """Copy the vector into the network, in place."""
    with torch.no_grad():
        start = 0
        for _, tensor, _ in _floating(model):
            tensor.copy_(vector[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()


def _floating(model: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            yield name, parameter, False
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            yield name, buffer, True
