"""ATP: one learned rate per module."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Mode
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Method, SourceInfo, method


@dataclass(frozen=True)
class _ATP(Method):
    """Modules move as far as their learned rates say.

    Paper: Bao, Wei, Wang and He, "Adaptive Test-Time Personalization for Federated Learning", NeurIPS 2023.
    """

    mode: ClassVar[Mode] = "batch"
    stateful = False
    needs_rates: ClassVar[str] = "all"

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A `Personalizer` with the rates that were learned for it."""
        if self.needs_rates not in source_info.rates:
            there = ", ".join(source_info.rates) or "none"
            raise MethodError(
                f"{self.name} needs learned rates of the kind {self.needs_rates!r}; there are: {there}. Pass "
                f"SourceInfo(rates={{{self.needs_rates!r}: ...}}) (--rates on the command line)"
            )
        return Personalized(Personalizer(model, source_info.rates[self.needs_rates], mode=self.mode))


@method("atp-batch")
@dataclass(frozen=True)
class ATPBatch(_ATP):
    """Every module moves along its direction on this batch, as far as its learned rate says."""


@method("atp-online")
@dataclass(frozen=True)
class ATPOnline(_ATP):
    """Every module moves along the mean of its directions on all batches so far, as its rate says."""

    mode: ClassVar[Mode] = "online"
    stateful = True


@method("atp-params")
@dataclass(frozen=True)
class ATPParams(_ATP):
    """Learnable tensors alone move, on each batch for itself; the ablation of the paper."""

    needs_rates: ClassVar[str] = "params"


@method("atp-stats")
@dataclass(frozen=True)
class ATPStats(_ATP):
    """BatchNorm's running statistics alone move, on each batch for itself; the ablation of the paper."""

    needs_rates: ClassVar[str] = "stats"


class Personalized(Adapter):
    """A `Personalizer` behind the methods' interface."""

    def __init__(self, personalizer: Personalizer) -> None:
        self._personalizer = personalizer  # it has a copy of the model of its own

    def adapt(self, batch: Any) -> Tensor:
        """What the personalizer answers."""
        logits: Tensor = self._personalizer(batch)
        return logits

    def reset(self) -> None:
        """Forget all directions."""
        self._personalizer.reset()
