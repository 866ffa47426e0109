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
    """Scale and shift of all normalisation layers learn to make predictions certain.

    BatchNorm uses the batch's statistics. Each batch is answered first, then it gives one step down the
    mean entropy, and learning goes on from batch to batch.

    Paper: Wang, Shelhamer, Liu, Olshausen and Darrell, "Tent: Fully Test-Time Adaptation by Entropy
    Minimization", ICLR 2021.

    Defaults: those of the authors' code (github.com/DequanWang/tent) for CIFAR-10, at batches of 200.
    """

    lr: float = tunable(1e-3, "step size", (1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2), NOT_NEGATIVE)
    optimizer: str = tunable(
        "adam", "adam, or sgd with a momentum of 0.9 (the paper's for ImageNet)", limit=one_of(*OPTIMIZERS)
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model, ready to learn."""
        return _Tent(model, affine_parameters, self.optimizer, self.lr)


class _Tent(Learner):
    def adapt(self, batch: Any) -> Tensor:
        logits = self.forward(batch, batch_statistics)
        self.descend(entropies(logits).mean())
        return logits
