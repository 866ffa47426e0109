"""BN-Adapt: BatchNorm statistics between those of training and those of the batch."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.methods.base import Method, SourceInfo, StatelessAdapter, method, tunable
from ttpfl.methods.normalisation import require_batch_norm, with_prior
from ttpfl.util.settings_kit import NOT_NEGATIVE


@method("bn-adapt")
@dataclass(frozen=True)
class BNAdapt(Method):
    """Mixes BatchNorm's stored statistics with those of the batch; nothing is learned.

    The stored statistics weigh as much as `prior` samples of the batch.

    Paper: Schneider, Rusak, Eck, Bringmann, Brendel and Bethge, "Improving Robustness against Common
    Corruptions by Covariate Shift Adaptation", NeurIPS 2020.
    """

    stateful = False

    prior: float = tunable(
        16.0,
        "weight of the stored statistics, in samples; 0 uses only the batch",
        (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0),
        NOT_NEGATIVE,
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> StatelessAdapter:
        """The model with mixed statistics."""
        return _BNAdapt(model, self.prior)


class _BNAdapt(StatelessAdapter):
    def __init__(self, model: nn.Module, prior: float) -> None:
        require_batch_norm(model)
        super().__init__(model)
        self._batch_norm = with_prior(prior)

    @torch.no_grad()
    def adapt(self, batch: Any) -> Tensor:
        return self.fast(batch, self._batch_norm)
