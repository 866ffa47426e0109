"""Label-free metrics that reveal harmful adaptation."""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from ttpfl._moved import renamed
from ttpfl.core.watch import Evidence

SMOOTHING = 0.1  # weight of a new batch, once ten batches have been seen


@dataclass(frozen=True)
class HealthFigures:
    """The effect of adaptation on one batch, or on average on recent ones."""

    entropy_before: float  # of the plain model's predictions (or the value of objective=)
    entropy_after: float
    change_norm: float  # Euclidean norm of the change of all weights and statistics
    changed_share: float  # predictions that differ from the plain model's, 0 to 1


@dataclass(frozen=True)
class Health:
    """The effect of adaptation on a stream of batches.

    Warning signs: `changed_share` far above its value on source clients, `entropy_after` near zero for every
    batch, a growing `change_norm`, any `fallbacks`, many samples `left_out`, and `evidence.adapting` off.

    >>> health = Health().after(HealthFigures(1.0, 0.8, 0.1, 0.25))
    >>> health.smoothed.changed_share
    0.25
    """

    batches: int = 0
    fallbacks: int = 0  # batches predicted by the plain model, because adaptation overflowed
    last: HealthFigures | None = None
    smoothed: HealthFigures | None = None
    left_out: int = (
        0  # samples that were not learned from, because they were much larger or smaller than usual
    )
    shortened: int = 0  # batches that would have moved the model further than those of source clients
    changes: int = 0  # how often the stream changed, so that everything before was forgotten
    evidence: Evidence | None = None  # of the guard, if the rates have one

    def after(self, figures: HealthFigures) -> "Health":
        """Health after one more batch."""
        batches = self.batches + 1
        weight = max(1 / batches, SMOOTHING)
        before = figures if self.smoothed is None else self.smoothed
        pairs = zip(vars(before).values(), vars(figures).values(), strict=True)
        smoothed = HealthFigures(*(_smoothed(old, new, weight) for old, new in pairs))
        return replace(self, batches=batches, last=figures, smoothed=smoothed)


def _smoothed(old: float, new: float, weight: float) -> float:
    if not isfinite(old):  # an overflow shows in `last`; it must not spoil the average forever
        return new
    return old + weight * (new - old) if isfinite(new) else old


def changed_share(plain: Tensor, adapted: Tensor) -> float:
    """Share of predictions that differ: the largest class, or the sign of a single column.

    >>> changed_share(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    0.5
    """
    changed = _predictions(plain) != _predictions(adapted)
    return int(changed.sum()) / changed.numel()


def _predictions(logits: Tensor) -> Tensor:
    return logits.argmax(1) if logits.ndim > 1 and logits.shape[1] > 1 else torch.gt(logits, 0)


__getattr__ = renamed(__name__)
