"""RDumb: EATA without a regulariser, reset at regular intervals."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.eata.method import EATA, SelectiveLearner
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.util.settings_kit import NOT_NEGATIVE, integer, one_of


@method("rdumb")
@dataclass(frozen=True)
class RDumb(Method):
    """Optimizes scale and shift of normalisation layers as EATA does, and resets them at regular intervals.

    Between two resets, the method is `eata` with `fisher` 0. A reset restores the parameters and forgets the
    optimizer and the moving average of predictions.

    Paper: Press, Schneider, Kümmerer and Bethge, "RDumb: A Simple Approach That Questions Our Progress in
    Continual Test-Time Adaptation", NeurIPS 2023.

    Defaults: the interval of the authors' code (github.com/oripress/CCC), which for ImageNet has lr 2.5e-4,
    margin 0.355 and similarity 0.05. The others are those of `eata` here, since with ten classes hardly any
    prediction is that far from the moving average.
    """

    lr: float = tunable(5e-3, "learning rate", (2.5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2), NOT_NEGATIVE)
    margin: float = tunable(0.4, "maximum entropy / log(classes)", (0.2, 0.3, 0.4, 0.5, 0.6), NOT_NEGATIVE)
    similarity: float = tunable(
        0.4, "maximum cosine to the moving average", (0.05, 0.1, 0.2, 0.4, 0.6), NOT_NEGATIVE
    )
    interval: int = tunable(
        1000, "batches between two resets; 1 learns nothing", (1, 3, 10, 30, 100, 1000), integer(1)
    )
    optimizer: str = tunable("sgd", "sgd with momentum 0.9, or adam", limit=one_of(*OPTIMIZERS))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a new optimizer."""
        eta = EATA(self.lr, self.margin, self.similarity, fisher=0.0, optimizer=self.optimizer)
        return _RDumb(model, eta, self.interval)


class _RDumb(SelectiveLearner):
    def __init__(self, model: nn.Module, eta: EATA, interval: int) -> None:
        super().__init__(model, eta, {})
        self._interval = interval

    def adapt(self, batch: Any) -> Tensor:
        logits = super().adapt(batch)
        self._batches += 1
        if self._batches == self._interval:
            self.reset()
        return logits

    def reset(self) -> None:
        super().reset()
        self._batches = 0
