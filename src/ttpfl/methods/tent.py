"""Tent: entropy minimisation in the affine parameters of normalisation layers."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.learner import Learner, entropies
from ttpfl.methods.normalisation import affine_parameters, batch_statistics
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.util.settings_kit import NOT_NEGATIVE, one_of


@method("tent")
@dataclass(frozen=True)
class Tent(Method):
    """Optimizes scale and shift of all normalisation layers to minimise the entropy of predictions.

    BatchNorm uses the batch's statistics. Each batch is predicted before its gradient step, and steps
    accumulate over batches.

    Paper: Wang, Shelhamer, Liu, Olshausen and Darrell, "Tent: Fully Test-Time Adaptation by Entropy
    Minimization", ICLR 2021.

    Defaults: the authors' code (github.com/DequanWang/tent) for CIFAR-10, with batches of 200.
    """

    lr: float = tunable(1e-3, "learning rate", (1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2), NOT_NEGATIVE)
    optimizer: str = tunable(
        "adam", "adam, or sgd with momentum 0.9 (the paper's for ImageNet)", limit=one_of(*OPTIMIZERS)
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a new optimizer."""
        return _Tent(model, affine_parameters, self.optimizer, self.lr)


class _Tent(Learner):
    def adapt(self, batch: Any) -> Tensor:
        logits = self.forward(batch, batch_statistics)
        self.descend(entropies(logits).mean())
        return logits
