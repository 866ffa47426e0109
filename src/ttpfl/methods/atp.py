"""ATP: one learned rate per module."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ttpfl.errors import MethodError
from ttpfl.methods.base import Knowledge, Method, Personal, method
from ttpfl.personalizer import Personalizer
from ttpfl.rates import Mode


@dataclass(frozen=True)
class _ATP(Method):
    mode: ClassVar[Mode] = "batch"
    needs_rates: ClassVar[str] = "all"
    paper: ClassVar[str] = (
        "Bao, Wei, Wang and He: Adaptive test-time personalization for federated learning, NeurIPS 2023"
    )

    def personal(self, model: nn.Module, knowledge: Knowledge) -> Personal:
        """A `Personalizer` with the rates that were learned for it."""
        if self.needs_rates not in knowledge.rates:
            there = ", ".join(knowledge.rates) or "none"
            raise MethodError(f"{self.name} needs rates of the kind {self.needs_rates!r}; there are: {there}")
        return Personalized(Personalizer(model, knowledge.rates[self.needs_rates], mode=self.mode))


@method("atp-batch")
@dataclass(frozen=True)
class ATPBatch(_ATP):
    """Every module moves along its direction on this batch, as far as its learned rate says."""


@method("atp-online")
@dataclass(frozen=True)
class ATPOnline(_ATP):
    """Every module moves along the mean of all directions so far, as far as its learned rate says."""

    mode: ClassVar[Mode] = "online"


@method("atp-params")
@dataclass(frozen=True)
class ATPParams(_ATP):
    """ATP-batch for learnable tensors only; the ablation of the paper."""

    needs_rates: ClassVar[str] = "params"


@method("atp-stats")
@dataclass(frozen=True)
class ATPStats(_ATP):
    """ATP-batch for BatchNorm's running statistics only; the ablation of the paper."""

    needs_rates: ClassVar[str] = "stats"


class Personalized(Personal):
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
