"""EM: the label prior of each batch, by expectation-maximisation."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.methods.prior import (
    class_counts,
    estimate,
    pseudo_counts,
    smoothed,
    source_counts,
    temperature,
    with_pseudo_counts,
)
from ttpfl.util.settings_kit import BOOLEAN, integer

LOG_ZERO = torch.tensor(-math.inf)


@method("em")
@dataclass(frozen=True)
class EM(Method):
    """Weights predictions by a label prior that EM estimates on the batch; no model weight changes.

    Each iteration sets the prior to the mean of the weighted predictions. This assumes a model trained on
    balanced classes. With `source_prior`, predictions are first divided by the source clients' label prior,
    and EM starts from that prior. `pseudo_counts` and `temperature` are additions to the paper: the first
    mixes the estimate with the prior before EM, so that few samples do no harm; the second calibrates the
    model, as Alexandari et al. (ICML 2020) recommend.

    Paper: Saerens, Latinne and Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori
    Probabilities: A Simple Procedure", Neural Computation 2002.
    """

    stateful = False

    iterations: int = tunable(2, "EM iterations", grid=(1, 2, 5, 10, 100), limit=integer(1))
    source_prior: bool = tunable(
        False, "divide by the source clients' label prior, as in the paper", limit=BOOLEAN
    )
    pseudo_counts: float = pseudo_counts()
    temperature: float = temperature()

    @property
    def needs_source(self) -> bool:
        """Only for the source clients' prior."""
        return self.source_prior

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """The number of labels of each class."""
        return {"labels": class_counts(model, batches)} if self.source_prior else {}

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with an estimated prior for each batch."""
        if not self.source_prior:
            return _EM(model, self, torch.tensor(0.0))
        message = f"{self.name} with source_prior needs the source clients' label counts: gather summaries"
        return _EM(model, self, smoothed(source_counts(source_info, "labels", message)).log())


@method("em-online")
@dataclass(frozen=True)
class EMOnline(EM):
    """EM with the mean of the priors of all the client's samples so far."""

    stateful = True


class _EM(Adapter):
    def __init__(self, model: nn.Module, config: EM, log_source: Tensor) -> None:
        super().__init__(model)
        self._config, self._log_source = config, log_source
        self._log_total = LOG_ZERO  # sum of the priors of all samples so far

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            logits = at_least_float32(self.plain(batch)) / self._config.temperature
            start = logits.log_softmax(1) - self._log_source.to(logits)
            log_prior = estimate(start, self._config.iterations, self._log_source)
            samples = len(start)
            if self._config.stateful:
                self._log_total = log_prior = torch.logaddexp(
                    self._log_total.to(start), log_prior + math.log(samples)
                )
                samples = 1  # a sum over samples, not a mean
            weight = self._config.pseudo_counts / samples
            log_prior = with_pseudo_counts(log_prior, self._log_source, weight)
            return (start + log_prior).log_softmax(1)

    def reset(self) -> None:
        self._log_total = LOG_ZERO
