"""The evidence of one stream: what adaptation gained so far, and whether the adapted model answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ttpfl.core.gain import effects
from ttpfl.core.guard import Estimator

INTERVAL = 1.96
"""Standard errors on each side of an estimate, for 95 % if errors are normal."""


@dataclass(frozen=True)
class Estimate:
    """An accuracy that was estimated without labels, and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """What the guard knows about a stream.

    >>> Evidence(adapting=True, gained=0.0, threshold=2.0)
    Evidence(adapting=True, gained=0.0, threshold=2.0, alarms=0, plain_accuracy=None, adapted_accuracy=None)
    """

    adapting: bool
    """Whether the adapted model answers; else the plain one."""
    gained: float
    """Estimated number of right predictions gained by adaptation so far; a loss if negative."""
    threshold: float
    """Estimated loss at which the plain model answers."""
    alarms: int = 0
    """How often the guard stopped adaptation."""
    plain_accuracy: Estimate | None = None
    adapted_accuracy: Estimate | None = None


class Watch:
    """Adds up the evidence of a stream.

    The plain model answers once the estimated loss exceeds the threshold, and the adapted one again once the
    loss is made up for. Both models are compared in every batch, whichever answers.
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator, self._coefficients = estimator, estimator.coefficients
        self.clear()

    def clear(self) -> None:
        """Forget the stream."""
        self._numbers = torch.zeros(6, dtype=torch.float64)

    @property
    def numbers(self) -> Tensor:
        """Everything that is remembered, to save it."""
        return self._numbers

    @numbers.setter
    def numbers(self, numbers: Tensor) -> None:
        self._numbers = numbers.to(self._numbers, copy=True)

    @property
    def evidence(self) -> Evidence:
        """What is known so far."""
        samples, _, gained, right, stopped, alarms = self._numbers.tolist()
        estimator, known = (
            self._estimator,
            (bool(not stopped), gained, self._estimator.threshold, int(alarms)),
        )
        if not samples:
            return Evidence(*known)
        plain, both = right / samples, (right + gained) / samples
        joint = (estimator.plain_error**2 + estimator.gain_error**2) ** 0.5
        return Evidence(*known, _estimate(plain, estimator.plain_error), _estimate(both, joint))

    def after(self, plain: Tensor, adapted: Tensor) -> Evidence:
        """The evidence after one more batch of logits."""
        samples, changed, gained, right, stopped, alarms = self._numbers.tolist()
        batch = effects(plain, adapted, changed, int(samples))
        gained += float((batch.gain @ self._coefficients.gain).sum())
        right += float((batch.right @ self._coefficients.right).clamp(0, 1).sum())
        changed += float(batch.changed.sum())
        if not stopped and gained < -self._estimator.threshold:
            stopped, alarms = 1.0, alarms + 1
        elif stopped and gained >= 0:
            stopped = 0.0
        numbers = [samples + len(plain), changed, gained, right, stopped, alarms]
        self._numbers = torch.tensor(numbers, dtype=torch.float64)
        return self.evidence


def _estimate(value: float, error: float) -> Estimate:
    low, high = (min(1.0, max(0.0, value + side * INTERVAL * error)) for side in (-1, 1))
    return Estimate(min(1.0, max(0.0, value)), low, high)
