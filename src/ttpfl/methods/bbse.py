"""BBSE: the client's label prior through the source clients' confusion matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.methods.prior import UNIFORM, confusion, explained, inverse, known, one_hot, smoothed
from ttpfl.util.settings_kit import BOOLEAN, number


@method("bbse")
@dataclass(frozen=True)
class BBSE(Method):
    """The logarithm of the label prior that explains this batch's predictions is added to the logits.

    The confusion matrix (predicted, true), added up over source clients and its columns normalised, maps a
    label prior to the distribution of predictions; its pseudo-inverse maps back. As the authors of ATP
    have it, the result is projected to the simplex and mixed with a little of the uniform distribution,
    and the model is taken to be trained on balanced classes, unless `source_prior` is on. A class that no
    source client has gets the uniform part alone.

    Paper: Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors",
    ICML 2018.
    """

    stateful = False

    soft: bool = tunable(False, "use predicted probabilities instead of predicted classes", limit=BOOLEAN)
    uniform: float = tunable(
        UNIFORM,
        "the share of the uniform prior",
        grid=(0.001, 0.01, 0.1, 0.5, 0.9),
        limit=number("above 0 and at most 1", lambda share: 0 < share <= 1),
    )
    cutoff: float = tunable(
        1e-6,
        "singular values below this share of the largest are taken as zero",
        grid=(1e-6, 1e-3, 0.01, 0.03, 0.1),
        limit=number("of at least 0 and below 1", lambda share: 0 <= share < 1),
    )
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as the paper of 2018 does", limit=BOOLEAN
    )

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """How often each class is predicted (rows) where another is true (columns), hard and soft."""
        return confusion(model, batches)

    def summary_key(self) -> Any:
        """The matrix is the same for all."""
        return ""

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a prior of its own for every batch."""
        complaint = "bbse needs the source clients' confusion matrix: ask them for it first"
        return _Corrected(model, self, known(source_info, "soft" if self.soft else "hard", complaint))


class _Corrected(Adapter):
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
                    f"the model has {logits.shape[1]}: ask them again, with this model"
                )
            guesses = logits.softmax(1) if self._config.soft else one_hot(logits.argmax(1), logits.shape[1])
            prior = explained(self._inverse, self._possible, guesses.mean(0).to(logits))
            return logits + smoothed(prior, self._config.uniform).log() - self._log_source.to(logits)

    def reset(self) -> None:
        pass
