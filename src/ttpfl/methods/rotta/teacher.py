"""A slow copy of a network that learns; for RoTTA."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.inputs import Inputs
from ttpfl.core.runner import Runner
from ttpfl.methods.base import own_copy
from ttpfl.methods.learner import usable
from ttpfl.methods.normalisation import BatchNorm, BatchNormCall, affine_parameters, in_place_of_torch


class Teacher:
    """Answers, and follows its student's normalisation layers."""

    def __init__(self, model: nn.Module) -> None:
        self.model = own_copy(model)
        self._parameters = list(affine_parameters(self.model).values())
        self._runner = Runner(self.model)
        with torch.inference_mode(False):
            self._fresh = [tensor.clone() for tensor in (*self._parameters, *self.model.buffers())]

    @torch.no_grad()
    def logits(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """Its answer, with `batch_norm` in place of torch's."""
        return usable(self._runner.fast(Inputs((batch,), {}), in_place_of_torch(batch_norm)))

    @torch.no_grad()
    def follow(self, student: Sequence[Tensor], share: float) -> None:
        """Move by this share towards the student's parameters."""
        for slow, quick in zip(self._parameters, student, strict=True):
            slow.lerp_(quick, share)

    def reset(self) -> None:
        """As it was at first."""
        _copy(self._fresh, (*self._parameters, *self.model.buffers()))

    def copy_statistics_to(self, student: nn.Module) -> None:
        """Give the student the same statistics of BatchNorm."""
        _copy(self.model.buffers(), student.buffers())


def _copy(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    with torch.inference_mode(False), torch.no_grad():
        for value, tensor in zip(source, target, strict=True):
            tensor.copy_(value)
