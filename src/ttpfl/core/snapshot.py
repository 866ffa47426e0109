"""What a personalizer learned as a plain model, to use without this library's other parts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.outputs import Readout, logits_of
from ttpfl.core.private_copy import private_copy
from ttpfl.core.twin import Moved, Twin
from ttpfl.errors import RatesError


class OffsetModel(nn.Module):
    """A model that adds a constant to the logits of another.

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


class Snapshots(ABC):
    """What a personalizer needs to return what it learned as weights or as a model."""

    _twin: Twin
    _rates: Mapping[str, Tensor]

    @abstractmethod
    def _moved(self) -> Moved:
        """The adapted tensors."""

    @abstractmethod
    def _offset(self) -> Tensor | None:
        """What the label prior adds to the logits, if anything."""

    def adapted_model(self) -> nn.Module:
        """Return a copy of the model with the adapted weights, to use without a personalizer.

        It is adapted even if the guard has stopped adaptation; in batch mode, to the last batch. If the rates
        move the label prior, the copy is wrapped in a model that adds `logit_offset`.

        >>> import torch, ttpfl
        >>> model = nn.Linear(3, 2)
        >>> rates = ttpfl.Rates.zeros(model).with_values(torch.ones(2))
        >>> personal = ttpfl.Personalizer(model, rates, "online")
        >>> logits = personal(torch.eye(3))
        >>> torch.allclose(personal.adapted_model()(torch.eye(3)), logits)
        True
        """
        moved = self._moved()
        model = private_copy(self._twin.model)
        model.load_state_dict(self._state_dict(moved))
        offset = self.logit_offset
        return model if offset is None else OffsetModel(model, offset, self._twin.readout)

    def adapted_state_dict(self) -> dict[str, Tensor]:
        """Return the adapted weights as a state dict of the model.

        In batch mode, they are adapted to the last batch. The label prior is not part of them: if the rates
        move it, this raises a RatesError.

        >>> import torch, ttpfl
        >>> model = nn.Linear(3, 2)
        >>> rates = ttpfl.Rates.zeros(model).with_values(torch.ones(2))
        >>> personal = ttpfl.Personalizer(model, rates, "online")
        >>> logits = personal(torch.eye(3))
        >>> model.load_state_dict(personal.adapted_state_dict())
        <All keys matched successfully>
        """
        if LABEL_PRIOR in self._rates:
            raise RatesError(
                f"the rates also move {LABEL_PRIOR!r}, which is no tensor of the model: use adapted_model()"
            )
        return self._state_dict(self._moved())

    @property
    def logit_offset(self) -> Tensor | None:
        """What the label prior adds to the logits; None if the rates do not move it, or before a batch."""
        offset = self._offset()
        return None if offset is None else offset.float()

    def _state_dict(self, moved: Moved) -> dict[str, Tensor]:
        with torch.inference_mode(False), torch.no_grad():
            return self._twin.state_dict(moved)
