"""The evidence of one stream: what adaptation does to it, and whether the adapted model answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ttpfl.core.gain import Coefficients, Past, effects
from ttpfl.core.guard import Estimator
from ttpfl.errors import RatesError

COUNTS = 9
"""Numbers to save before what is remembered of predictions."""
INTERVAL = 1.96
"""Standard errors on each side of an estimate, for 95 % if errors are normal."""
FARTHEST = 4.0
"""Mean squared distance from the usual figures, in which source clients have 1, that the adapted model may
answer at."""
LARGEST_LOSS = 0.03
"""Estimated loss per prediction that the adapted model may answer at."""
ALARM = 3
"""More batches that do not look good than that do, for an alarm."""
MOST = 5
"""A larger balance is not remembered, so that a stream can recover."""


@dataclass(frozen=True)
class Estimate:
    """An accuracy that was estimated without labels, and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """What the guard knows about a stream.

    >>> Evidence(adapting=True).alarms
    0
    """

    adapting: bool
    """Whether the adapted model answered the last batch; else the plain one."""
    alarm: bool = False
    """Whether adaptation is stopped."""
    distance: float = 0.0
    """Mean squared distance of the stream's figures from those of source clients, who have 1 on average."""
    gain: float = 0.0
    """Estimated gain per prediction in the last batch."""
    gained: float = 0.0
    """Estimated number of right predictions that adaptation would have gained so far."""
    alarms: int = 0
    """How often the guard stopped adaptation."""
    plain_batches: int = 0
    """How many batches the plain model answered."""
    plain_accuracy: Estimate | None = None
    adapted_accuracy: Estimate | None = None


class Caution:
    """Decides for each batch which model answers, and when to stop.

    Where adaptation does not look as at source clients, or seems to harm, the plain model answers at once.
    After three such batches more than others, adaptation is stopped: then the plain model answers until there
    were as many others. Smaller batches than those of source clients count as parts of one.

    >>> caution = Caution(20)
    >>> [caution.allows(good, 20) for good in (True, False, False, False, True, True, True, True)]
    [True, False, False, False, False, False, True, True]
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.balance, self.stopped, self.alarms = 0.0, False, 0

    def allows(self, good: bool, samples: int) -> bool:
        """Whether the adapted model may answer a batch, in which adaptation looks good or not."""
        size = min(1.0, samples / self._batch_size)
        self.balance = max(0.0, self.balance - size) if good else min(MOST, self.balance + size)
        if not self.stopped and self.balance >= ALARM - 1e-6:
            self.stopped, self.alarms = True, self.alarms + 1
        elif self.balance < 1e-6:
            self.stopped = False
        return good and not self.stopped


def looks_good(figures: Tensor, coefficients: Coefficients) -> bool:
    """Whether adaptation with these figures may answer."""
    usual = coefficients.distance(figures) <= FARTHEST
    return usual and coefficients.gained(figures) >= -LARGEST_LOSS


class Watch:
    """Adds up the evidence of a stream. Both models are compared in every batch, whichever answers.

    Args:
        estimator: that of the guard.
        batch_size: of the source clients.
        refused: whether adaptation is stopped from the beginning.
    """

    def __init__(self, estimator: Estimator, batch_size: int, refused: bool = False) -> None:
        self._refused = refused
        self._estimator, self._coefficients, self._batch_size = estimator, estimator.coefficients, batch_size
        self.clear()

    def clear(self) -> None:
        """Forget the stream."""
        self._caution, self._adapting, self._plain_batches = Caution(self._batch_size), not self._refused, 0
        self._caution.stopped, self._caution.alarms = self._refused, int(self._refused)
        self._distance = self._gain = 0.0
        self.forget_past()

    def forget_past(self) -> None:
        """Begin a new stream; caution remains, since rates that do not fit go on to harm."""
        self._past = Past()
        self._gained = self._plain_right = 0.0

    @property
    def numbers(self) -> Tensor:
        """Everything that is remembered, to save it."""
        caution = self._caution
        counts: list[float] = [caution.balance, caution.stopped, caution.alarms]
        counts += [self._adapting, self._plain_batches]
        counts += [self._distance, self._gain, self._gained, self._plain_right]
        return torch.cat([torch.tensor(counts, dtype=torch.float64), self._past.numbers])

    @numbers.setter
    def numbers(self, numbers: Tensor) -> None:
        counts, past = numbers.double().cpu().split([COUNTS, len(numbers) - COUNTS])
        balance, stopped, alarms, adapting, plain_batches, *sums = counts.tolist()
        self._distance, self._gain, self._gained, self._plain_right = sums
        caution = self._caution
        caution.balance, caution.stopped, caution.alarms = balance, bool(stopped), int(alarms)
        self._adapting, self._plain_batches, self._past = bool(adapting), int(plain_batches), Past.of(past)

    @property
    def evidence(self) -> Evidence:
        """What is known so far."""
        samples, estimator, caution = self._past.samples, self._estimator, self._caution
        known = (self._adapting, caution.stopped, self._distance, self._gain, self._gained, caution.alarms)
        if not samples:
            return Evidence(*known, self._plain_batches)
        plain, both = self._plain_right / samples, (self._plain_right + self._gained) / samples
        joint = (estimator.plain_error**2 + estimator.gain_error**2) ** 0.5
        if self._distance > FARTHEST:  # nothing is known about the errors of such estimates
            joint = 1.0
        estimates = (_estimate(plain, estimator.plain_error), _estimate(both, joint))
        return Evidence(*known, self._plain_batches, *estimates)

    def after(self, plain: Tensor, adapted: Tensor) -> Evidence:
        """The evidence after one more batch of logits."""
        classes = len(self._past.plain)
        if self._past.samples and classes != plain.shape[1]:
            raise RatesError(f"the state is of a model with {classes} classes, not {plain.shape[1]}")
        batch = effects(plain, adapted, self._past)
        self._past = batch.past
        self._distance = self._coefficients.distance(batch.figures)
        self._gain = self._coefficients.gained(batch.figures)
        self._gained += len(plain) * self._gain
        self._plain_right += float((batch.right @ self._coefficients.right).clamp(0, 1).sum())
        self._adapting = self._caution.allows(looks_good(batch.figures, self._coefficients), len(plain))
        self._plain_batches += not self._adapting
        return self.evidence

    def overflowed(self, samples: int) -> Evidence:
        """The evidence after a batch in which adaptation overflowed, or was refused."""
        self._caution.allows(False, samples)
        self._caution.stopped |= self._refused
        self._adapting, self._plain_batches = False, self._plain_batches + 1
        return self.evidence


def _estimate(value: float, error: float) -> Estimate:
    low, high = (min(1.0, max(0.0, value + side * INTERVAL * error)) for side in (-1, 1))
    return Estimate(min(1.0, max(0.0, value)), low, high)
