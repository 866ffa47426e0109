"""The label prior as a module: logits move towards the classes that are frequent at a client.

When all other modules have moved, predictions show how frequent each class is at the client. The direction
is the logarithm of these frequencies over those of the source clients; it is added to the logits, times its
rate. What a client remembers of its stream are *soft counts*: how many of its samples are expected to be of
each class. Before its first sample, the client is assumed to have seen the soft counts in `Rates.prior`.
Their proportions are the mean predictions of the source clients. Their sum is large if source clients hardly
differ, so that a client needs many samples to show that it does.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import BatchError

LABEL_PRIOR = "label_prior"
"""Name of the module."""
SMOOTHING = 0.01
"""Added to frequencies, so that the direction is at most log(1 + 1 / SMOOTHING)."""
ITERATIONS = 2
"""Of EM, within a batch."""
MOST_LABELS = 100.0
"""How many labels a prediction is worth at most, for predictions that do not vary."""


def predicted(logits: Tensor, classes: int) -> Tensor:
    """The predicted probabilities of each sample's classes; differentiable.

    >>> predicted(torch.tensor([[0.0, 0.0], [3.0, 1.0]]).log1p(), classes=2)
    tensor([[0.5000, 0.5000],
            [0.6667, 0.3333]])
    """
    if logits.ndim != 2 or logits.shape[1] != classes:
        raise BatchError(
            f"the model returns logits of shape {tuple(logits.shape)}, but the rates have a label prior of "
            f"{classes} classes: learn rates for this model"
        )
    return at_least_float32(logits).softmax(1)


def soft_counts(logits: Tensor, assumed: Sequence[float]) -> Tensor:
    """How many samples of a batch are expected to be of each class; differentiable in the logits.

    Predictions expect the frequencies of the source clients, so they are corrected for the client's, which
    follow from the corrected predictions (EM: Saerens, Latinne and Decaestecker, 2002).

    >>> soft_counts(torch.tensor([[2.0, 1.0]] * 30).log(), [5.0, 5.0]).round(decimals=1)
    tensor([24.6000,  5.4000], dtype=torch.float64)
    """
    rows = likely = predicted(logits, len(assumed)).double()
    for _ in range(ITERATIONS if any(assumed) else 0):
        weighted = rows * prior_direction(likely.sum(0), assumed).exp()
        likely = weighted / weighted.sum(1, keepdim=True)
    return likely.sum(0)


def prior_direction(counts: Tensor, assumed: Sequence[float]) -> Tensor:
    """Logarithm of a client's class frequencies over the source clients'.

    Args:
        counts: soft counts of the client's samples so far.
        assumed: soft counts before the first sample; zeros if they are not known yet.

    >>> prior_direction(torch.tensor([50.0, 50.0]), [20.0, 20.0])
    tensor([0., 0.])
    >>> prior_direction(torch.tensor([90.0, 10.0]), [20.0, 20.0]).round(decimals=2)
    tensor([ 0.4400, -0.8200])
    """
    if not any(assumed):
        return torch.zeros_like(counts)
    before, base = _source(tuple(assumed), counts.dtype, counts.device)
    after = counts + before
    return ((after / after.sum() + SMOOTHING) / base).log()


@lru_cache
def _source(assumed: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Soft counts before the first sample, and smoothed frequencies; the same in every batch."""
    with torch.inference_mode(False):  # the caller's mode must not matter to later ones
        before = torch.tensor(assumed, dtype=dtype, device=device)
        return before, before / before.sum() + SMOOTHING


def weighted_prediction(probabilities: Tensor) -> Tensor:
    """Mean prediction of a client's samples, times the number of labels that one prediction is worth.

    Probabilities vary less than labels, so their mean is as certain as the frequencies among a larger number
    of labels. The sum of the result is the ratio of both variances.

    >>> weighted_prediction(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(50, 1)).round(decimals=1)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    >>> weighted_prediction(torch.tensor([[0.6, 0.4], [0.4, 0.6]]).repeat(50, 1)).round(decimals=1)
    tensor([12.4000, 12.4000], dtype=torch.float64)
    """
    rows = probabilities.double()
    mean = rows.mean(0)
    of_labels = float(1 - mean.square().sum())  # summed over classes
    of_rows = float(rows.var(0).sum()) if len(rows) > 1 else of_labels
    return mean * min(MOST_LABELS, of_labels / of_rows if of_rows > 0 else MOST_LABELS)
