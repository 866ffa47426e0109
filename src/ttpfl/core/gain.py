"""What adaptation does to the predictions of a stream, in ten figures that need no labels.

Source clients, who have labels, teach two things about these figures: their usual range where rates fit, and
how much adaptation gains. A range is a mean and a covariance; the gain is a linear model of the figures and
their squares, fitted by least squares. Both need nothing but sums, so that clients need to send no sample.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.statistics import at_least_float32

FIGURES = 10
GAIN, RIGHT, RANGE = 1 + 2 * FIGURES, 4, 1 + FIGURES
"""Numbers of features of the model of the gain, of that of right predictions, and of the range."""
HALF = FIGURES * (FIGURES + 1) // 2
COEFFICIENTS = GAIN + RIGHT + FIGURES + HALF
RIDGE = 1e-3
"""Penalty on coefficients of features with unit variance."""
SHRINKAGE = 0.1
"""Of correlations of figures, since clients are few."""
SMALLEST_DEVIATION = 1e-3
"""Of a figure that hardly varies at source clients."""
LARGEST_DIVERGENCE = 10.0
"""Between two predictions, so that a single one does not dominate a stream."""
_SUMS = 8


class Past(NamedTuple):
    """What is remembered of the earlier batches of a stream: sums over samples."""

    samples: int = 0
    sums: Tensor = torch.zeros(_SUMS, dtype=torch.float64)
    plain: Tensor = torch.zeros(1, dtype=torch.float64)
    adapted: Tensor = torch.zeros(1, dtype=torch.float64)
    """Predicted probabilities of each class."""

    @property
    def numbers(self) -> Tensor:
        """Everything in one tensor, to save it."""
        return torch.cat([self.sums.new_tensor([self.samples]), self.sums, self.plain, self.adapted])

    @classmethod
    def of(cls, numbers: Tensor) -> "Past":
        """From `numbers`."""
        samples, sums, classes = numbers.split([1, _SUMS, len(numbers) - _SUMS - 1])
        return cls(int(samples), sums.clone(), *(part.clone() for part in classes.chunk(2)))


class Effects(NamedTuple):
    """Figures of a stream after one more batch, and what to remember of it."""

    figures: Tensor
    right: Tensor
    """Features of each sample of the batch, for the plain model being right."""
    past: Past


def effects(plain: Tensor, adapted: Tensor, past: Past) -> Effects:
    """The figures of a stream after one more batch, from its logits.

    All but the last are about the stream so far: the share of changed predictions, the entropy of
    predictions and its change, their divergence, how evenly predictions are spread over the classes and how
    that changes, how far the two models' shares of the classes are apart, and the plain and the adapted
    model's preference for their own class where they disagree. The last is how evenly the plain predictions
    of this batch are spread over the classes.
    """
    p, q = _probabilities(plain), _probabilities(adapted)
    best, second = p.topk(2, dim=1).values.unbind(1)
    before, after = p.argmax(1, keepdim=True), q.argmax(1, keepdim=True)
    changed = (before != after).double()
    old_p, new_p = p.gather(1, before), p.gather(1, after)
    old_q, new_q = q.gather(1, before), q.gather(1, after)
    unit = log(p.shape[1])
    far = (p * (p.clamp(min=1e-12) / q.clamp(min=1e-12)).log()).sum(1).clamp(0, LARGEST_DIVERGENCE)
    columns = (changed, _entropy(p)[:, None] / unit, _entropy(q)[:, None] / unit, far[:, None])
    preferences = (old_p * changed, new_p * changed, old_q * changed, new_q * changed)
    sums = torch.cat([*columns, *preferences], dim=1).sum(0)
    past = Past(past.samples + len(p), past.sums + sums, past.plain + p.sum(0), past.adapted + q.sum(0))
    share, sure, sure_after, divergence, *rest = (past.sums / past.samples).unbind()
    p_shares, q_shares = past.plain / past.samples, past.adapted / past.samples
    even = _entropy(p_shares) / unit
    figures = torch.stack(
        [
            *(share.sqrt(), sure, sure_after - sure, divergence.sqrt()),
            *(even, _entropy(q_shares) / unit - even, (p_shares - q_shares).abs().sum() / 2),
            *(rest[0] - rest[1], rest[3] - rest[2], _entropy(p.mean(0)) / unit),
        ]
    )
    return Effects(figures, torch.stack([torch.ones_like(best), best, best * best, second], dim=1), past)


def for_range(figures: Tensor) -> Tensor:
    """Features of the range, from one row of figures per batch."""
    return torch.cat([torch.ones_like(figures[:, :1]), figures], dim=1)


def for_gain(figures: Tensor) -> Tensor:
    """Features of the gain, from one row of figures per batch."""
    return torch.cat([torch.ones_like(figures[:, :1]), figures, figures.square()], dim=1)


class Sums(NamedTuple):
    """Sums over rows of features, of which the first is 1: their products, and those with a target."""

    gram: Tensor
    moment: Tensor

    @classmethod
    def of(cls, features: Tensor, target: Tensor, weight: float = 1.0) -> "Sums":
        """The sums of some rows."""
        return cls(weight * features.T @ features, weight * features.T @ target)

    @classmethod
    def zeros(cls, features: int) -> "Sums":
        """The sums of no row."""
        return cls(
            *(torch.zeros(shape, dtype=torch.float64) for shape in ((features, features), (features,)))
        )

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        return Sums(self.gram + other.gram, self.moment + other.moment)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of all features but the first."""
        means = self.gram[0] / self.gram[0, 0].clamp(min=1e-12)
        covariance = self.gram / self.gram[0, 0].clamp(min=1e-12) - means * means[:, None]
        return means[1:], covariance[1:, 1:]

    def solved(self) -> Tensor:
        """Coefficients with the least squared error, and a small penalty.

        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> Sums.of(x, x @ torch.tensor([1.0, 2.0], dtype=torch.float64)).solved().round(decimals=1)
        tensor([1., 2.], dtype=torch.float64)
        """
        means, covariance = self.moments()
        target = self.moment / self.gram[0, 0].clamp(min=1e-12)
        scale = covariance.diagonal().clamp(min=1e-12).sqrt()
        penalised = covariance / scale / scale[:, None] + RIDGE * torch.eye(len(scale)).to(scale)
        slopes: Tensor = torch.linalg.solve(penalised, (target[1:] - means * target[0]) / scale) / scale
        return torch.cat([target[:1] - means @ slopes, slopes])


class Coefficients(NamedTuple):
    """What source clients taught: two linear models, and the usual range of the figures."""

    gain: Tensor
    """Of a prediction, in right predictions."""
    right: Tensor
    """Of a plain prediction."""
    centre: Tensor
    precision: Tensor
    """Of the figures: mean, and inverse of the covariance."""

    @property
    def numbers(self) -> Tensor:
        """All in one tensor; of the symmetric precision, only a half."""
        rows, columns = torch.triu_indices(FIGURES, FIGURES).unbind()
        return torch.cat([self.gain, self.right, self.centre, self.precision[rows, columns]])

    @classmethod
    def of(cls, numbers: Tensor) -> "Coefficients":
        """From `numbers`."""
        gain, right, centre, half = numbers.double().split([GAIN, RIGHT, FIGURES, HALF])
        upper = half.new_zeros(FIGURES, FIGURES)
        upper[tuple(torch.triu_indices(FIGURES, FIGURES))] = half
        return cls(gain, right, centre, upper + upper.triu(1).T)

    @classmethod
    def fitted(cls, gain: Sums, right: Sums, usual: Tensor) -> "Coefficients":
        """From sums over source clients; `usual` is the Gram matrix of the features of the range."""
        centre, covariance = Sums(usual, usual[0]).moments()
        own = covariance.diagonal().clamp(min=SMALLEST_DEVIATION**2).diag()
        precision = torch.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * own)
        return cls(gain.solved(), right.solved(), centre, (precision + precision.T) / 2)

    def distance(self, figures: Tensor) -> float:
        """Mean squared distance of the figures from their usual values, 1 on average where rates fit."""
        far = figures - self.centre
        return float(far @ self.precision @ far) / FIGURES

    def gained(self, figures: Tensor) -> float:
        """Estimated gain of a prediction, from -1 to 1."""
        return float((for_gain(figures[None]) @ self.gain).clamp(-1, 1))


def _entropy(shares: Tensor) -> Tensor:
    found: Tensor = torch.special.entr(shares).sum(-1)
    return found


def _probabilities(logits: Tensor) -> Tensor:
    return at_least_float32(logits.detach()).double().cpu().softmax(1)
