"""ATP: one learned rate per module."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Mode
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.util.settings_kit import BOOLEAN, PROBABILITY


@dataclass(frozen=True)
class _ATP(Method):
    """Modules move by their learned rates.

    Paper: Bao, Wei, Wang and He, "Adaptive Test-Time Personalization for Federated Learning", NeurIPS 2023.
    """

    mode: ClassVar[Mode] = "batch"
    stateful = False
    needs_rates: ClassVar[str] = "all"

    guard: bool = tunable(False, "whether the guard of the rates is used", limit=BOOLEAN, neutral=True)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A `Personalizer` with the learned rates."""
        if self.needs_rates not in source_info.rates:
            available = ", ".join(source_info.rates) or "none"
            raise MethodError(
                f"{self.name} needs learned rates of kind {self.needs_rates!r}; available: {available}. Pass "
                f"SourceInfo(rates={{{self.needs_rates!r}: ...}}) (--rates on the command line)"
            )
        rates = source_info.rates[self.needs_rates]
        if self.guard and rates.guard is None and bool(rates.values.any()):
            raise MethodError(
                f"{self.name} with guard=True needs rates with a guard: learn them with learn.guard = true "
                "in a recipe, or ttpfl learn --guard, from at least four source clients"
            )
        decay = getattr(self, "decay", None)
        return Personalized(Personalizer(model, rates, self.mode, decay=decay, guard=self.guard))


@method("atp-batch")
@dataclass(frozen=True)
class ATPBatch(_ATP):
    """Each module moves along its direction on the current batch, scaled by its learned rate."""


@method("atp-online")
@dataclass(frozen=True)
class ATPOnline(_ATP):
    """Each module moves along its mean direction over all batches so far, scaled by its learned rate."""

    mode: ClassVar[Mode] = "online"
    stateful = True

    decay: float | None = tunable(
        None,
        "weight of the past in an exponential mean, for streams that change",
        (),
        PROBABILITY,
        neutral=True,
    )


@method("atp-params")
@dataclass(frozen=True)
class ATPParams(_ATP):
    """Only learnable tensors move, independently on each batch (ablation in the paper)."""

    needs_rates: ClassVar[str] = "params"


@method("atp-stats")
@dataclass(frozen=True)
class ATPStats(_ATP):
    """Only BatchNorm's running statistics move, independently on each batch (ablation in the paper)."""

    needs_rates: ClassVar[str] = "stats"


class Personalized(Adapter):
    """A `Personalizer` with the interface of a method."""

    def __init__(self, personalizer: Personalizer) -> None:
        self._personalizer = personalizer  # which copies the model

    def adapt(self, batch: Any) -> Tensor:
        """The personalizer's logits."""
        logits: Tensor = self._personalizer(batch)
        self.evidence = self._personalizer.health.evidence
        return logits

    def reset(self) -> None:
        """Forget all directions."""
        self._personalizer.reset()
        self.evidence = None
