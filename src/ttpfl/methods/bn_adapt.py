"""BN-Adapt: statistics of BatchNorm between those of training and those of the batch."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.normalisation import require_batch_norm, with_prior
from ttpfl.util.settings_kit import NOT_NEGATIVE


@method("bn-adapt")
@dataclass(frozen=True)
class BNAdapt(Method):
    """BatchNorm's mean and variance are mixed from the stored ones and the batch's; nothing is learned.

    The stored statistics count as `prior` samples, the batch's as many as it has.

    Paper: Schneider, Rusak, Eck, Bringmann, Brendel and Bethge, "Improving Robustness against Common
    Corruptions by Covariate Shift Adaptation", NeurIPS 2020.
    """

    stateful = False

    prior: float = tunable(
        16.0,
        "how many samples the stored statistics count for; 0 is the batch alone",
        (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0),
        NOT_NEGATIVE,
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with mixed statistics."""
        return _BNAdapt(model, self.prior)


class _BNAdapt(Adapter):
    def __init__(self, model: nn.Module, prior: float) -> None:
        require_batch_norm(model)
        super().__init__(model)
        self._batch_norm = with_prior(prior)

    @torch.no_grad()
    def adapt(self, batch: Any) -> Tensor:
        return self.fast(batch, self._batch_norm)

    def reset(self) -> None:
        pass  # every batch is on its own
