"""The evidence of one stream: what adaptation gained so far, and whether the adapted model answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ttpfl.core.gain import Past, effects, remembered
from ttpfl.core.guard import Estimator

COUNTS = 7
"""Numbers to save before the sums of probabilities."""
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
    """Estimated number of right predictions gained by adaptation so far, at most `gain.MOST_GAIN`; a loss if
    negative. After a change of the stream, only a loss is remembered."""
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
        self._past, self._gained, self._stopped, self._alarms = Past(), 0.0, False, 0
        self._plain_right = self._adapted_right = 0.0

    def forget_gain(self) -> None:
        """Begin a new stream; a loss so far still counts, since rates that do not fit go on to harm."""
        self._past, self._gained = Past(), min(0.0, self._gained)
        self._plain_right = self._adapted_right = 0.0

    @property
    def numbers(self) -> Tensor:
        """Everything that is remembered, to save it."""
        past = self._past
        counts = [past.samples, past.changed, self._gained, self._stopped, self._alarms]
        counts += [self._plain_right, self._adapted_right]
        return torch.cat([torch.tensor(counts, dtype=torch.float64), past.plain, past.adapted])

    @numbers.setter
    def numbers(self, numbers: Tensor) -> None:
        counts, sums = numbers.double().cpu().split([COUNTS, len(numbers) - COUNTS])
        samples, changed, self._gained, stopped, alarms, *right = counts.tolist()
        self._plain_right, self._adapted_right = right
        plain, adapted = sums.clone().chunk(2)
        self._past = Past(int(samples), changed, plain, adapted)
        self._stopped, self._alarms = bool(stopped), int(alarms)

    @property
    def evidence(self) -> Evidence:
        """What is known so far."""
        samples, estimator = self._past.samples, self._estimator
        known = (not self._stopped, self._gained, estimator.threshold, self._alarms)
        if not samples:
            return Evidence(*known)
        plain, both = self._plain_right / samples, self._adapted_right / samples
        joint = (estimator.plain_error**2 + estimator.gain_error**2) ** 0.5
        return Evidence(*known, _estimate(plain, estimator.plain_error), _estimate(both, joint))

    def after(self, plain: Tensor, adapted: Tensor) -> Evidence:
        """The evidence after one more batch of logits."""
        batch = effects(plain, adapted, self._past)
        self._past = batch.past
        gained = float((batch.gain @ self._coefficients.gain).sum())
        right = float((batch.right @ self._coefficients.right).clamp(0, 1).sum())
        self._gained = remembered(self._gained, gained)
        self._plain_right += right
        self._adapted_right += right + gained
        if not self._stopped and self._gained < -self._estimator.threshold:
            self._stopped, self._alarms = True, self._alarms + 1
        elif self._stopped and self._gained >= 0:
            self._stopped = False
        return self.evidence


def _estimate(value: float, error: float) -> Estimate:
    low, high = (min(1.0, max(0.0, value + side * INTERVAL * error)) for side in (-1, 1))
    return Estimate(min(1.0, max(0.0, value)), low, high)
