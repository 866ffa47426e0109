"""EATA: entropy minimisation on reliable and non-redundant samples, without forgetting."""

import math
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.twin import isolated
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.methods.eata.fisher import BATCHES, drift, importance, squared_gradients
from ttpfl.methods.learner import Learner, entropies
from ttpfl.methods.normalisation import affine_parameters, batch_statistics
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.util.settings_kit import NOT_NEGATIVE, one_of


@method("eata")
@dataclass(frozen=True)
class EATA(Method):
    """Optimizes scale and shift of normalisation layers on confident, non-redundant samples.

    A sample counts if its entropy is below `margin` and its prediction differs from the moving average of
    those that counted; confident samples weigh more. A regulariser keeps parameters that are important on
    source data (Fisher information, with predictions as labels) near their initial values.

    Paper: Niu, Wu, Zhang, Chen, Zheng, Zhao and Tan, "Efficient Test-Time Model Adaptation without
    Forgetting", ICML 2022.

    Defaults: margin as in the authors' code (github.com/mr-eggplant/EATA), which for ImageNet has lr 2.5e-4,
    similarity 0.05 and fisher 2000. For CIFAR-10, similarity and fisher as in
    github.com/mariodoebler/test-time-adaptation, and lr as in the paper, with batches of 200.
    """

    lr: float = tunable(5e-3, "learning rate", (2.5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2), NOT_NEGATIVE)
    margin: float = tunable(0.4, "maximum entropy / log(classes)", (0.2, 0.3, 0.4, 0.5, 0.6), NOT_NEGATIVE)
    similarity: float = tunable(
        0.4, "maximum cosine to the moving average", (0.05, 0.1, 0.2, 0.4, 0.6), NOT_NEGATIVE
    )
    fisher: float = tunable(1.0, "weight of the regulariser", (0.1, 1.0, 10.0, 100.0, 2000.0), NOT_NEGATIVE)
    optimizer: str = tunable("sgd", "sgd with momentum 0.9, or adam", limit=one_of(*OPTIMIZERS))

    @property
    def needs_source(self) -> bool:
        """Only for the regulariser; the paper calls the method without it ETA."""
        return self.fisher > 0

    def summary_key(self) -> Any:
        """Summaries depend only on the global model."""
        return self.needs_source

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """The sum over batches of squared gradients, with the model's own predictions as labels."""
        with isolated():
            return squared_gradients(SelectiveLearner(model, self, {}), batches)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a new optimizer."""
        if self.needs_source and not source_info.summary.get(BATCHES):
            raise MethodError("eata needs the source clients' summaries: gather them, or set fisher=0")
        return SelectiveLearner(model, self, source_info.summary if self.needs_source else {})


class SelectiveLearner(Learner):
    """Minimises the entropy of selected samples; with a summary, it also limits the drift of parameters."""

    _mean: Tensor | None  # moving average of the predictions that counted

    def __init__(self, model: nn.Module, config: EATA, summary: Summary) -> None:
        super().__init__(model, affine_parameters, config.optimizer, config.lr)
        self._config = config
        self._importance = importance(summary, self.learning) if summary else []

    def adapt(self, batch: Any) -> Tensor:
        """Predict, then take a step."""
        logits = self.forward(batch, batch_statistics)
        entropy, p = entropies(logits), logits.detach().softmax(1)
        margin = self._config.margin * math.log(logits.shape[1])
        counts = entropy.detach() < margin
        if self._mean is not None:
            counts &= F.cosine_similarity(self._mean[None], p).abs() < self._config.similarity
        if counts.any():
            loss = ((margin - entropy.detach()).exp() * entropy)[counts].mean()
            if self._importance:
                loss = loss + self._config.fisher * drift(self._importance, self.parameters, self.initial)
            self.descend(loss)
            new = p[counts].mean(0)
            self._mean = new if self._mean is None else 0.9 * self._mean + 0.1 * new
        return logits

    def reset(self) -> None:
        """Restore the initial parameters, and forget optimizer and predictions."""
        super().reset()
        self._mean = None
