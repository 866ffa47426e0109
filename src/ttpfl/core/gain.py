"""What adaptation gains, estimated without labels from the predictions of the plain and the adapted model.

Two linear models, fitted by least squares on source clients: one for the gain of an adapted prediction (+1 if
only the adapted one is right, -1 if only the plain one is, else 0), and one for the plain prediction being
right. Only samples whose prediction changes can gain. Least squares needs nothing but sums over samples, so
that clients need to send no sample.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.statistics import at_least_float32

GAIN, RIGHT = 12, 4
"""Numbers of features of the two models."""
RIDGE = 1e-3
"""Penalty, in units of the mean square of each feature."""
MOST_GAIN = 20.0
"""Predictions: a larger gain is not remembered, so that harm which begins late is noticed in time."""


def remembered(total: float, gained: float) -> float:
    """The gain of a stream after one more batch.

    >>> remembered(15.0, 10.0), remembered(15.0, -20.0)
    (20.0, -5.0)
    """
    return min(total + gained, MOST_GAIN)


class Coefficients(NamedTuple):
    """The two models."""

    gain: Tensor
    right: Tensor


class Past(NamedTuple):
    """What is remembered of the earlier batches of a stream."""

    samples: int = 0
    changed: float = 0.0
    """Number of changed predictions."""
    plain: Tensor = torch.zeros(1, dtype=torch.float64)
    adapted: Tensor = torch.zeros(1, dtype=torch.float64)
    """Sums of the predicted probabilities of each class."""


class Effects(NamedTuple):
    """Features of every sample of a batch, and what to remember of the stream."""

    changed: Tensor
    """Whether the prediction changes."""
    gain: Tensor
    right: Tensor
    past: Past


def effects(plain: Tensor, adapted: Tensor, past: Past) -> Effects:
    """Features of a batch, from its logits.

    Besides probabilities of the plain and the adapted class before and after, features are about the stream
    so far: the share of changed predictions, and how much more evenly the predictions of the adapted model
    are spread over the classes.
    """
    p, q = _probabilities(plain), _probabilities(adapted)
    best, second = p.topk(2, dim=1).values.unbind(1)
    before, after = p.argmax(1, keepdim=True), q.argmax(1, keepdim=True)
    changed = (before != after).double()
    samples, count = past.samples + len(p), past.changed + float(changed.sum())
    past = Past(samples, count, past.plain + p.sum(0), past.adapted + q.sum(0))
    old_p, new_p = p.gather(1, before), p.gather(1, after)
    old_q, new_q = q.gather(1, before), q.gather(1, after)
    one = torch.ones_like(old_p)
    products = (old_p * old_p, new_q * new_q, new_p * new_q, old_p * old_q)
    share, evenness = count / samples, _entropy(past.adapted) - _entropy(past.plain)
    stream = (one * share, one * evenness, one * share * evenness)
    gain = torch.cat([one, old_p, new_p, old_q, new_q, *products, *stream], dim=1) * changed
    right = torch.stack([torch.ones_like(best), best, best * best, second], dim=1)
    return Effects(changed[:, 0], gain, right, past)


class Sums(NamedTuple):
    """Sums over samples for least squares: products of features, and products with the target."""

    gram: Tensor
    moment: Tensor

    @classmethod
    def of(cls, features: Tensor, target: Tensor) -> "Sums":
        """The sums of some samples."""
        return cls(features.T @ features, features.T @ target)

    @classmethod
    def zeros(cls, features: int) -> "Sums":
        """The sums of no sample."""
        return cls(
            *(torch.zeros(shape, dtype=torch.float64) for shape in ((features, features), (features,)))
        )

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        return Sums(self.gram + other.gram, self.moment + other.moment)

    def solved(self) -> Tensor:
        """Coefficients with the least squared error, and a small penalty.

        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> Sums.of(x, x @ torch.tensor([1.0, 2.0], dtype=torch.float64)).solved().round(decimals=1)
        tensor([1., 2.], dtype=torch.float64)
        """
        scale = self.gram.diagonal().clamp(min=1e-12).sqrt()
        unit = self.gram / scale / scale[:, None]
        penalised = unit + RIDGE * torch.eye(len(scale)).to(unit)
        solution: Tensor = torch.linalg.solve(penalised, self.moment / scale)
        return solution / scale


def _entropy(sums: Tensor) -> float:
    shares = sums / sums.sum()
    return float(torch.special.entr(shares).sum())


def _probabilities(logits: Tensor) -> Tensor:
    return at_least_float32(logits.detach()).softmax(1).double().cpu()
