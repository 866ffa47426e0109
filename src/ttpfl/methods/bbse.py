"""BBSE: the label prior of each batch, from the source clients' confusion matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import MethodError
from ttpfl.methods.base import Labelled, Method, SourceInfo, StatelessAdapter, Summary, method, tunable
from ttpfl.methods.prior import UNIFORM, confusion, explained, inverse, one_hot, smoothed, source_counts
from ttpfl.util.settings_kit import BOOLEAN, number


@method("bbse")
@dataclass(frozen=True)
class BBSE(Method):
    """Adds the logarithm of the estimated label prior of the batch to the logits.

    The confusion matrix (predicted, true), summed over source clients and with normalised columns, maps a
    label prior to the distribution of predictions; its pseudo-inverse maps back. As in the ATP authors'
    code, the result is projected onto the simplex and mixed with the uniform distribution, and training
    classes are assumed to be balanced unless `source_prior` is set. A class that no source client has gets
    only the uniform part.

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
        grid=(1e-6, 1e-3, 0.01, 0.03, 0.1),
        limit=number("of at least 0 and below 1", lambda share: 0 <= share < 1),
    )
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as in the paper", limit=BOOLEAN
    )

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """Confusion matrices, of predicted classes and of predicted probabilities."""
        return confusion(model, batches)

    def summary_key(self) -> Any:
        """The matrices do not depend on hyper-parameters."""
        return ""

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> StatelessAdapter:
        """The model with an estimated prior for each batch."""
        message = "bbse needs the source clients' confusion matrix: gather their summaries first"
        return _BBSE(model, self, source_counts(source_info, "soft" if self.soft else "hard", message))


class _BBSE(StatelessAdapter):
    def __init__(self, model: nn.Module, config: BBSE, counts: Tensor) -> None:
        super().__init__(model)
        self._config = config
        self._inverse, self._possible = inverse(counts, config.cutoff), counts.sum(0) > 0
        source = smoothed(counts.sum(0).float())
        self._log_source = source.log() if config.source_prior else torch.zeros_like(source)

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            logits = at_least_float32(self.plain(batch))
            if logits.shape[1] != len(self._inverse):
                raise MethodError(
                    f"the source clients' confusion matrix has {len(self._inverse)} classes, "
                    f"the model has {logits.shape[1]}: gather the summaries again with this model"
                )
            predicted = logits.softmax(1) if self._config.soft else one_hot(logits.argmax(1), logits.shape[1])
            prior = explained(self._inverse, self._possible, predicted.mean(0).to(logits))
            return logits + smoothed(prior, self._config.uniform).log() - self._log_source.to(logits)
