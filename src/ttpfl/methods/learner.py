"""The base of methods that take gradient steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.inputs import all_finite
from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods.base import Adapter
from ttpfl.methods.normalisation import BatchNorm, BatchNormCall
from ttpfl.methods.optimizer import Optimizer, optimizer

Choose = Callable[[nn.Module], Mapping[str, nn.Parameter]]
"""Selects the parameters to optimize, by state-dict key."""


class Learner(Adapter):
    """Optimizes some of the model's parameters; `reset` restores them.

    Everything that can fail precedes the step: a failed batch changes nothing.

    Args:
        model: The user's model, which is copied.
        choose: Selects the parameters to optimize.
        kind: The optimizer, "adam" or "sgd".
        lr: The learning rate.
    """

    def __init__(self, model: nn.Module, choose: Choose, kind: str, lr: float) -> None:
        super().__init__(model)
        self.learning = dict(choose(self.model))
        self.parameters = [parameter.requires_grad_() for parameter in self.learning.values()]
        with torch.inference_mode(False):
            self.initial = [parameter.detach().clone() for parameter in self.parameters]
        self._new_optimizer: Callable[[], Optimizer] = lambda: optimizer(kind, self.parameters, lr)
        self.reset()

    def forward(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """The logits; an error if they are not finite."""
        return check_logits(self.fast(batch, batch_norm))

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the loss; zeros for parameters that it does not depend on."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        if not all(map(all_finite, gradients)):
            raise BatchError("the gradient is not finite on this batch: nothing was learned from it")
        return gradients

    def descend(self, loss: Tensor) -> None:
        """Take one optimizer step."""
        self.optimizer.step(self.gradients(loss))

    def set_parameters(self, values: Sequence[Tensor]) -> None:
        """Set the parameters that are optimized."""
        copy_values(values, self.parameters)

    put = set_parameters  # the name in 0.1

    def reset(self) -> None:
        """Restore the initial parameters and create a new optimizer."""
        self.set_parameters(self.initial)
        with torch.inference_mode(False):
            self.optimizer = self._new_optimizer()


def copy_values(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    """Copy the values of tensors, even under inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        for value, tensor in zip(source, target, strict=True):
            tensor.copy_(value)


def check_logits(logits: Tensor) -> Tensor:
    """The logits, if they are finite and have at least two classes; otherwise an error."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise MethodError(
            f"the model's output ({shape}) is not one vector of logits per sample, with two classes or more: "
            "wrap the model so that it is"
        )
    if not all_finite(logits):
        raise BatchError(
            "the logits are not finite: reset the method and try a smaller learning rate, or check the "
            "unadapted model; nothing was learned from this batch"
        )
    return logits


def entropies(logits: Tensor) -> Tensor:
    """The entropy of each sample's prediction.

    >>> entropies(torch.tensor([[0.0, 0.0], [100.0, 0.0]])).exp()
    tensor([2., 1.])
    """
    log_p = torch.log_softmax(at_least_float32(logits), dim=1)
    return -(log_p.exp() * log_p).sum(1)
