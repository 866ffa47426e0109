"""BBSE: the label prior of target samples, from the source clients' confusion matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.methods.prior import (
    UNIFORM,
    confusion,
    explained,
    inverse,
    one_hot,
    pseudo_counts,
    smoothed,
    source_counts,
    temperature,
)
from ttpfl.util.settings_kit import BOOLEAN, number


@method("bbse")
@dataclass(frozen=True)
class BBSE(Method):
    """Adds the logarithm of the estimated label prior of the batch to the logits.

    The confusion matrix (predicted, true), summed over source clients and with normalised columns, maps a
    label prior to the distribution of predictions; its pseudo-inverse maps back. As in the ATP authors'
    code, the result is projected onto the simplex and mixed with the uniform distribution, and training
    classes are assumed to be balanced unless `source_prior` is set. A class that no source client has gets
    only the uniform part. `pseudo_counts` and `temperature` are additions, as in `em`.

    Paper: Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors",
    ICML 2018.
    """

    stateful = False

    soft: bool = tunable(False, "use predicted probabilities instead of predicted classes", limit=BOOLEAN)
    uniform: float = tunable(
        UNIFORM,
        "weight of the uniform prior",
        grid=(0.001, 0.01, 0.1, 0.5, 0.9),
        limit=number("above 0 and at most 1", lambda share: 0 < share <= 1),
    )
    cutoff: float = tunable(
        1e-6,
        "singular values below this fraction of the largest count as zero",
        limit=number("of at least 0 and below 1", lambda share: 0 <= share < 1),
    )
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as in the paper", limit=BOOLEAN
    )
    pseudo_counts: float = pseudo_counts()
    temperature: float = temperature()

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """Confusion matrices, of predicted classes and of predicted probabilities."""
        return confusion(model, batches)

    def summary_key(self) -> Any:
        """The matrices do not depend on hyper-parameters."""
        return ""

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with an estimated prior."""
        message = f"{self.name} needs the source clients' confusion matrix: gather their summaries first"
        return _BBSE(model, self, source_counts(source_info, "soft" if self.soft else "hard", message))


@method("bbse-online")
@dataclass(frozen=True)
class BBSEOnline(BBSE):
    """BBSE with the mean prediction of all the client's samples so far."""

    stateful = True


class _BBSE(Adapter):
    _total: Tensor | float  # sum of the predictions so far
    _samples: int

    def __init__(self, model: nn.Module, config: BBSE, counts: Tensor) -> None:
        super().__init__(model)
        self._config = config
        self._inverse, self._possible = inverse(counts, config.cutoff), counts.sum(0) > 0
        labels = counts.sum(0).float() if config.source_prior else torch.ones(len(counts))
        self._source = smoothed(labels)
        self.reset()

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            logits = at_least_float32(self.plain(batch))
            if logits.shape[1] != len(self._inverse):
                raise MethodError(
                    f"the source clients' confusion matrix has {len(self._inverse)} classes, "
                    f"the model has {logits.shape[1]}: gather the summaries again with this model"
                )
            total, samples = self._predictions(logits)
            source = self._source.to(logits)
            prior = explained(self._inverse, self._possible, (total / samples).to(logits))
            prior = smoothed(prior + self._config.pseudo_counts / samples * source, self._config.uniform)
            log_source = source.log() if self._config.source_prior else 0.0
            return logits / self._config.temperature + prior.log() - log_source

    def _predictions(self, logits: Tensor) -> tuple[Tensor, int]:
        """The sum and the number of predictions: of the batch, or of the stream including the batch."""
        predicted = logits.softmax(1) if self._config.soft else one_hot(logits.argmax(1), logits.shape[1])
        total, samples = self._total + predicted.sum(0).double(), self._samples + len(predicted)
        if self._config.stateful:
            self._total, self._samples = total, samples
        return total, samples

    def reset(self) -> None:
        self._total, self._samples = 0.0, 0
