"""BBSE: the client's label prior through the source clients' confusion matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.direction import check_finite
from ttpfl.errors import MethodError
from ttpfl.methods.base import Knowledge, Labelled, Method, Personal, Summary, method, tunable
from ttpfl.methods.none import NoAdaptation
from ttpfl.methods.prior import UNIFORM, inverse, on_simplex, one_hot, smoothed
from ttpfl.statistics import at_least_float32


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

    soft: bool = tunable(False, "use predicted probabilities instead of predicted classes")
    uniform: float = tunable(UNIFORM, "the share of the uniform prior", grid=(0.0001, 0.001, 0.01, 0.1, 0.5))
    cutoff: float = tunable(
        1e-6,
        "singular values below this share of the largest are taken as zero",
        grid=(1e-6, 1e-3, 0.01, 0.03, 0.1),
    )
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as the paper of 2018 does"
    )

    def __post_init__(self) -> None:
        if not (0 < self.uniform <= 1 and 0 <= self.cutoff < 1):
            raise MethodError(f"{self}: uniform must be in (0, 1] and cutoff in [0, 1)")

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """How often each class is predicted (rows) where another is true (columns), hard and soft."""
        plain, hard, soft = NoAdaptation().personal(model, Knowledge()), [], []
        for x, y in batches:
            logits = plain(x)
            truth = one_hot(y.to(logits.device), logits.shape[1])
            hard.append(one_hot(logits.argmax(1), logits.shape[1]).T @ truth)
            soft.append(logits.double().softmax(1).T @ truth)
        return {"hard": torch.stack(hard).sum(0), "soft": torch.stack(soft).sum(0)} if hard else {}

    def personal(self, model: nn.Module, knowledge: Knowledge) -> Personal:
        """The model with a prior of its own for every batch."""
        kind = "soft" if self.soft else "hard"
        if not knowledge.summary.get(kind, torch.zeros(1)).sum():
            raise MethodError("bbse needs the source clients' confusion matrix: ask them for it first")
        return _Corrected(model, self, knowledge.summary[kind])


class _Corrected(Personal):
    def __init__(self, model: nn.Module, config: BBSE, confusion: Tensor) -> None:
        super().__init__(model)
        self._config = config
        self._inverse, self._known = inverse(confusion, config.cutoff), confusion.sum(0) > 0
        source = smoothed(confusion.sum(0).float())
        self._log_source = source.log() if config.source_prior else torch.zeros_like(source)

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            logits = at_least_float32(check_finite(self.model(batch)))
            if logits.shape[1] != len(self._inverse):
                raise MethodError(
                    f"the source clients' confusion matrix has {len(self._inverse)} classes, "
                    f"the model has {logits.shape[1]}: ask them again, with this model"
                )
            guesses = logits.softmax(1) if self._config.soft else one_hot(logits.argmax(1), logits.shape[1])
            found = self._inverse.to(logits) @ guesses.mean(0).to(logits)
            known = self._known.to(found.device)
            prior = torch.zeros_like(found).masked_scatter_(known, on_simplex(found[known]))
            log_prior = smoothed(prior, self._config.uniform).log() - self._log_source.to(logits)
            return logits + log_prior

    def reset(self) -> None:
        pass
