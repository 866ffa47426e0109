"""A client's loss after adaptation with given rates, its slope in every rate, and its predictions."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.direction import Objective, entropy
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.inputs import all_finite
from ttpfl.core.label_prior import weighted_prediction
from ttpfl.core.last_layer import last_layer
from ttpfl.core.learning import Adaptation, Loss, checked_pair, cross_entropy, tallied
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import MODES, Mode, Rates
from ttpfl.core.twin import Twin, isolated
from ttpfl.errors import RatesError, noted

OVERFLOW = 1e5
"""Loss of a batch whose adaptation overflows, in units of the largest loss so far (or 1): so that such rates
are never preferred to others."""


class Slope(NamedTuple):
    """What adaptation with some rates does at a client."""

    slope: Tensor
    """Derivative of the mean loss in every rate."""
    sums: MetricSums
    """Loss and correct predictions."""
    prediction: Tensor
    """Mean prediction before the label prior, see `weighted_prediction`; empty without a prior, and zeros if
    adaptation overflows in every batch."""


def mean_slope(
    twin: Twin,
    rates: Rates,
    batches: Iterable[Any],
    mode: Mode,
    cache: DirectionCache | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> Slope:
    """Derivative of the client's mean loss in every rate, and its loss and predictions.

    Every sample counts the same, whatever the size of its batch. A batch that overflows with these rates has
    a very large loss and no slope.
    """
    MODES.check(RatesError, mode=mode)
    values = rates.values.detach().to(twin.device)
    total, sums, largest = torch.zeros(len(values), dtype=torch.float64), MetricSums(), 1.0

    def observe(logits: Tensor, labels: Tensor, batch_loss: Tensor) -> None:
        nonlocal largest
        finite = bool(batch_loss.isfinite())
        largest = max(largest, float(batch_loss)) if finite else largest
        sums.add(logits, labels, batch_loss if finite else torch.tensor(OVERFLOW * largest))

    adaptation = Adaptation(twin, rates, mode, cache, objective, keep_predictions=True)
    with isolated():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client"):
                inputs, labels = checked_pair(batch)
                direction = adaptation.direction(inputs)
                slope = adaptation.slope(values, direction, inputs, labels, loss, observe)
                if all_finite(slope):
                    total += slope.cpu().double() * len(labels)
    return Slope((total / max(1, sums.samples)).to(rates.values), sums, _mean_prediction(adaptation, rates))


def plain_prediction(twin: Twin, rates: Rates, batches: Iterable[Any], loss: Loss = cross_entropy) -> Slope:
    """The client's loss and mean prediction without adaptation, and slopes of zero.

    `rates` has the label prior; slopes are only known when the other clients' predictions are.
    """
    nothing = rates.with_values(torch.zeros_like(rates.values))
    adaptation = Adaptation(twin, nothing, "batch", None, entropy, keep_predictions=True)
    sums = tallied(adaptation, nothing, batches, loss)
    return Slope(nothing.values, sums, _mean_prediction(adaptation, rates))


def _mean_prediction(adaptation: Adaptation, rates: Rates) -> Tensor:
    if not adaptation.predictions:
        return torch.zeros(len(rates.prior)).to(rates.values)
    return weighted_prediction(torch.cat(adaptation.predictions)).to(rates.values)


def class_count(twin: Twin, batch: Any) -> int | None:
    """Number of classes, if the model returns class logits and labels are classes; else None."""
    inputs, labels = checked_pair(batch)
    with isolated(), torch.no_grad():
        logits = twin.fast(inputs)
    classes = logits.ndim == 2 and logits.shape[1] > 1 and labels.ndim == 1 and not labels.is_floating_point()
    return logits.shape[1] if classes else None


def head_name(twin: Twin, batch: Any) -> str | None:
    """Name of the last layer: the linear layer whose output is the logits of this batch, if there is one."""
    inputs, _ = checked_pair(batch)
    with isolated(), torch.no_grad():
        twin.runner.rehearse(inputs)
        found = last_layer(twin.model, lambda: twin.plain(inputs))
    return None if found is None else found.name
