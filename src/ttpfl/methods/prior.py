"""Label priors: counted on source clients, estimated on target samples, smoothed."""

import math

import torch
from torch import Tensor, nn

from ttpfl.errors import MethodError
from ttpfl.methods.base import Labelled, SourceInfo, Summary, tunable
from ttpfl.methods.none import NoAdaptation
from ttpfl.util.settings_kit import NOT_NEGATIVE, POSITIVE

UNIFORM = 0.001


def pseudo_counts() -> float:
    """The hyper-parameter that shrinks an estimated prior towards the one that training assumed."""
    return tunable(
        0.0,
        "weight of the prior that the model was trained on, in samples; 0 uses only the estimate",
        grid=(0.0, 10.0, 100.0, 1000.0),
        limit=NOT_NEGATIVE,
        neutral=True,
    )


def temperature() -> float:
    """The hyper-parameter that calibrates logits before a prior is combined with them."""
    return tunable(
        1.0,
        "logits are divided by it before a prior is added",
        grid=(0.5, 0.7, 1.0, 1.4),
        limit=POSITIVE,
        neutral=True,
    )


def class_counts(model: nn.Module, batches: Labelled) -> Tensor:
    """The number of labels of each class; the model determines the number of classes."""
    counts = torch.zeros(0, dtype=torch.float64)
    for x, y in batches:
        if not len(counts):
            counts = counts.new_zeros(NoAdaptation().adapter(model, SourceInfo())(x).shape[1])
        counts = counts + one_hot(y, len(counts)).sum(0).cpu()
    return counts


def confusion(model: nn.Module, batches: Labelled) -> Summary:
    """Confusion matrices (predicted, true): of predicted classes ("hard") and probabilities ("soft")."""
    plain, hard, soft = NoAdaptation().adapter(model, SourceInfo()), [], []
    for x, y in batches:
        logits = plain(x)
        truth = one_hot(y.to(logits.device), logits.shape[1])
        hard.append(one_hot(logits.argmax(1), logits.shape[1]).T @ truth)
        soft.append(logits.double().softmax(1).T @ truth)
    return {"hard": torch.stack(hard).sum(0), "soft": torch.stack(soft).sum(0)} if hard else {}


def source_counts(source_info: SourceInfo, key: str, message: str) -> Tensor:
    """Counts from source clients, or an error with this message."""
    counts = source_info.summary.get(key, torch.zeros(1))
    if not counts.sum():
        raise MethodError(message)
    return counts


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels in one-hot encoding.

    >>> one_hot(torch.tensor([1, 4]), 3)
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: label 4 is out of range: the model has 3 classes, numbered from 0
    """
    for label in (int(labels.min()), int(labels.max())) if len(labels) else ():
        if not 0 <= label < classes:
            raise MethodError(
                f"label {label} is out of range: the model has {classes} classes, numbered from 0"
            )
    return torch.nn.functional.one_hot(labels.long(), classes).double()


def smoothed(weights: Tensor, uniform: float = UNIFORM) -> Tensor:
    """Normalise weights and mix them with the uniform distribution, so that no class is impossible.

    >>> smoothed(torch.tensor([3.0, 1.0, 0.0, 0.0]), 0.1)
    tensor([0.7000, 0.2500, 0.0250, 0.0250])
    """
    return (1 - uniform) * weights / weights.sum() + uniform / len(weights)


def on_simplex(point: Tensor) -> Tensor:
    """The Euclidean projection onto the probability simplex (Duchi et al., ICML 2008).

    >>> on_simplex(torch.tensor([0.9, 0.3, -1.0]))
    tensor([0.8000, 0.2000, 0.0000])
    """
    point = point - point.max()  # does not change the result and keeps large numbers exact
    ordered = point.sort(descending=True).values
    excess = (ordered.cumsum(0) - 1) / torch.arange(1, len(point) + 1, device=point.device)
    return (point - excess[(ordered > excess).sum() - 1]).clamp(min=0)


def inverse(confusion: Tensor, cutoff: float) -> Tensor:
    """The pseudo-inverse of a confusion matrix (predicted, true) with normalised columns.

    Singular values below `cutoff` times the largest count as zero, so that noise is not amplified. (The ATP
    authors' cutoff of 1e-15 has no effect in single precision: rounding decides on singular matrices.)

    >>> inverse(torch.tensor([[3.0, 0.0], [1.0, 0.0]]), 1e-6)  # no sample of class 1
    tensor([[1.2000, 0.4000],
            [0.0000, 0.0000]])
    """
    confusion = confusion.float()
    total = confusion.sum(0)
    columns = confusion / torch.where(total > 0, total, 1)
    pseudo_inverse: Tensor = torch.linalg.pinv(columns, atol=0.0, rtol=cutoff)
    return pseudo_inverse


def explained(inverse: Tensor, possible: Tensor, predicted: Tensor) -> Tensor:
    """The label prior that explains a mean prediction.

    Args:
        inverse: The inverse of the confusion matrix.
        possible: Which classes the prior may contain.
        predicted: The mean prediction.
    """
    prior = inverse.to(predicted) @ predicted
    possible = possible.to(prior.device)
    return torch.zeros_like(prior).masked_scatter_(possible, on_simplex(prior[possible]))


def estimate(log_p: Tensor, iterations: int, log_first: Tensor) -> Tensor:
    """Estimate the logarithm of the label prior by EM.

    Args:
        log_p: Log-probabilities (samples, classes) under a uniform prior.
        iterations: The number of EM iterations.
        log_first: The logarithm of the initial prior, up to a constant.

    >>> estimate(torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log(), 2, torch.tensor(0.0)).exp()
    tensor([0.5000, 0.5000])
    """
    log_prior = log_first.to(log_p)
    for _ in range(iterations):
        log_prior = (log_p + log_prior).log_softmax(1).logsumexp(0) - math.log(len(log_p))
    return log_prior


def with_pseudo_counts(log_prior: Tensor, log_source: Tensor, weight: float) -> Tensor:
    """Add a source prior with a weight to an estimated prior of weight 1; the result is not normalised.

    Args:
        log_prior: The logarithm of the estimated prior.
        log_source: The logarithm of the source prior, up to a constant; a scalar is a uniform prior.
        weight: The weight of the source prior; 0 changes nothing.

    >>> with_pseudo_counts(torch.tensor([0.9, 0.1]).log(), torch.tensor(0.0), 1.0).softmax(0)
    tensor([0.7000, 0.3000])
    """
    log_source = log_source.to(log_prior).expand_as(log_prior).log_softmax(0)
    return torch.logaddexp(log_prior, log_source + torch.tensor(weight).to(log_prior).log())
