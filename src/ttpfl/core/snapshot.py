"""A plain model with an adapted label prior, to use without this library's other parts."""

from typing import Any

from torch import Tensor, nn

from ttpfl.core.outputs import Readout, logits_of


class OffsetModel(nn.Module):
    """A model that adds a constant to the logits of another.

    >>> import torch
    >>> OffsetModel(nn.Identity(), torch.tensor([1.0, 0.0]))(torch.zeros(1, 2))
    tensor([[1., 0.]])
    """

    offset: Tensor

    def __init__(self, model: nn.Module, offset: Tensor, readout: Readout | None = None) -> None:
        super().__init__()
        self.model, self._readout = model, readout or logits_of
        self.register_buffer("offset", offset)

    def forward(self, x: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """The logits with the offset. Takes the model's arguments; exporters need a named first one."""
        inputs = () if x is None else (x, *args)
        logits = self._readout(self.model(*inputs, **kwargs))
        return logits + self.offset.to(logits.dtype)
