"""What methods that change parameters of their model from batch to batch have in common."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.inputs import all_finite
from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods.base import Adapter
from ttpfl.methods.normalisation import BatchNorm, BatchNormCall
from ttpfl.methods.optimizer import Optimizer, optimizer


class Learner(Adapter):
    """Takes steps in some of the model's parameters; `reset` takes all of them back.

    Everything that can fail comes before the step: a failed batch changes nothing.

    Args:
        model: the user's, of which a copy is made.
        choose: picks the parameters that learn, by state-dict key.
        kind: of the optimizer, "adam" or "sgd".
        lr: the step size.
    """

    def __init__(
        self,
        model: nn.Module,
        choose: Callable[[nn.Module], Mapping[str, nn.Parameter]],
        kind: str,
        lr: float,
    ) -> None:
        super().__init__(model)
        self.learning = dict(choose(self.model))
        self.parameters = [parameter.requires_grad_() for parameter in self.learning.values()]
        with torch.inference_mode(False):
            self.fresh = [parameter.detach().clone() for parameter in self.parameters]
        self._optimizer: Callable[[], Optimizer] = lambda: optimizer(kind, self.parameters, lr)
        self.reset()

    def forward(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """The logits, if they are finite; else an error."""
        return usable(self.fast(batch, batch_norm))

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Of the loss, in the parameters that learn; zeros where it does not depend on them."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        if not all(map(all_finite, gradients)):
            raise BatchError("the gradient is not finite on this batch: nothing was learned from it")
        return gradients

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of the loss."""
        self.optimizer.step(self.gradients(loss))

    def put(self, values: Sequence[Tensor]) -> None:
        """Set the parameters that learn."""
        with torch.inference_mode(False), torch.no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)

    def reset(self) -> None:
        """The parameters as they were, and an optimizer that has seen nothing."""
        self.put(self.fresh)
        with torch.inference_mode(False):
            self.optimizer = self._optimizer()


def usable(logits: Tensor) -> Tensor:
    """The logits, if they are finite and of several classes; else an error."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        what = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise MethodError(
            f"the model's output ({what}) is not one vector of logits per sample, with two classes or more: "
            "wrap the model so that it is"
        )
    if not all_finite(logits):
        raise BatchError(
            "the logits are not finite: reset what was learned and try a smaller step size, or check the "
            "model, if its own are not; nothing was learned from this batch"
        )
    return logits


def entropies(logits: Tensor) -> Tensor:
    """The entropy of each sample's prediction.

    >>> entropies(torch.tensor([[0.0, 0.0], [100.0, 0.0]])).exp()
    tensor([2., 1.])
    """
    log_p = torch.log_softmax(at_least_float32(logits), dim=1)
    return -(log_p.exp() * log_p).sum(1)
