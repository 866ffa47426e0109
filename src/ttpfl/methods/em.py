"""EM: the client's label prior by expectation-maximisation."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.methods.prior import class_counts, estimate, known, smoothed
from ttpfl.util.settings_kit import BOOLEAN, integer

NOTHING = torch.tensor(-math.inf)


@method("em")
@dataclass(frozen=True)
class EM(Method):
    """Predictions are weighted by the label prior that EM finds on this batch; no weight changes.

    The prior is the mean of the predictions,
    the predictions are the model's own times the prior; and again. That is right for a model trained on
    balanced classes, as it is taken to be unless `source_prior` asks for the source clients' label counts:
    then predictions are divided by their prior first, and EM begins with it, at the model's own predictions.

    Paper: Saerens, Latinne and Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori
    Probabilities: A Simple Procedure", Neural Computation 2002.
    """

    stateful = False

    iterations: int = tunable(
        2, "rounds of expectation and maximisation", grid=(1, 2, 5, 10, 100), limit=integer(1)
    )
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as the paper of 2002 does", limit=BOOLEAN
    )

    @property
    def needs_source(self) -> bool:
        """Only for the prior of source clients."""
        return self.source_prior

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """How many labels of each class."""
        return {"labels": class_counts(model, batches)} if self.source_prior else {}

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a prior of its own for every batch."""
        if not self.source_prior:
            return _Weighted(model, self, torch.tensor(0.0))
        complaint = f"{self.name} with source_prior needs the source clients' label counts: ask them"
        return _Weighted(model, self, smoothed(known(source_info, "labels", complaint)).log())


@method("em-online")
@dataclass(frozen=True)
class EMOnline(EM):
    """EM with the mean of the priors that were found on all of the client's samples so far."""

    stateful = True


class _Weighted(Adapter):
    def __init__(self, model: nn.Module, config: EM, log_source: Tensor) -> None:
        super().__init__(model)
        self._config, self._log_source = config, log_source
        self._log_total = NOTHING  # of the priors of all samples so far

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            start = at_least_float32(self.plain(batch)).log_softmax(1)
            start = start - self._log_source.to(start)
            log_prior = estimate(start, self._config.iterations, self._log_source)
            if self._config.stateful:
                self._log_total = log_prior = torch.logaddexp(
                    self._log_total.to(start), log_prior + math.log(len(start))
                )
            return (start + log_prior).log_softmax(1)

    def reset(self) -> None:
        self._log_total = NOTHING
