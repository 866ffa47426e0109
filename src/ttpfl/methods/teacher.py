"""The slow teacher of RoTTA and CoTTA."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.inputs import Inputs
from ttpfl.core.runner import Runner
from ttpfl.methods.base import own_copy
from ttpfl.methods.learner import Choose, check_logits, copy_values
from ttpfl.methods.normalisation import BatchNorm, BatchNormCall, in_place_of_torch


class Teacher:
    """A slow copy of a network; the parameters that `choose` selects follow those of the student."""

    def __init__(self, model: nn.Module, choose: Choose) -> None:
        self.model = own_copy(model)
        self._parameters = list(choose(self.model).values())
        self._runner = Runner(self.model)
        with torch.inference_mode(False):
            self._initial = [tensor.clone() for tensor in (*self._parameters, *self.model.buffers())]

    @torch.no_grad()
    def logits(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """The teacher's logits; `batch_norm` replaces torch's."""
        return check_logits(self._runner.fast(Inputs((batch,), {}), in_place_of_torch(batch_norm)))

    @torch.no_grad()
    def follow(self, student: Sequence[Tensor], share: float) -> None:
        """Move towards the student's parameters by this fraction."""
        for parameter, value in zip(self._parameters, student, strict=True):
            parameter.lerp_(value, share)

    def reset(self) -> None:
        """Restore the initial state."""
        copy_values(self._initial, (*self._parameters, *self.model.buffers()))

    def copy_statistics_to(self, student: nn.Module) -> None:
        """Copy BatchNorm's statistics to the student."""
        copy_values(self.model.buffers(), student.buffers())
