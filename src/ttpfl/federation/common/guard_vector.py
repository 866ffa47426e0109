"""What travels when a guard is learned: vectors of one length, in two rounds.

The server sends the rates, and in the second round the coefficients of every fold of clients. Clients reply
with the extremes of their data and with sums over batches; in the second round with what the coefficients of
their own fold, which were fitted without them, decide and estimate about their streams.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.gain import COEFFICIENTS, GAIN, RANGE, RIGHT, Coefficients, Sums
from ttpfl.core.lessons import LESSONS

FOLDS = 5
TEACH, EXAMINE = 0, 1
"""Numbers of the rounds."""
_LARGEST_ESTIMATE = 10.0
"""Limit of an estimate per sample, which is at most about 1: it is linear, so it may overshoot."""


class Exam(NamedTuple):
    """A lesson: what the guard would have done, and what was estimated without its labels."""

    samples: float
    plain_right: float
    adapted_right: float
    guarded_right: float
    alarms: float
    gained: float
    """Estimated gain, in predictions."""


class Taught(NamedTuple):
    """A client's reply in the first round."""

    extremes: Tensor
    gain: Sums
    right: Sums
    usual: Tensor
    """Gram matrix of the features of the range."""


class GuardVector(NamedTuple):
    """The layout of the vectors."""

    rates: int
    """Length of the packed rates."""
    modules: int

    @property
    def length(self) -> int:
        """Length of all vectors."""
        taught = sum(self._taught_sizes)
        return max(self.rates + FOLDS * COEFFICIENTS, taught, len(Exam._fields) * len(LESSONS) + 1)

    @property
    def _taught_sizes(self) -> list[int]:
        return [2 * self.modules + 2, GAIN * GAIN, GAIN, RIGHT * RIGHT, RIGHT, RANGE * RANGE]

    def task(self, rates: Tensor, folds: list[Coefficients]) -> Tensor:
        """The server's message."""
        return self._padded(torch.cat([rates.float(), *(fold.numbers.float() for fold in folds)]))

    def read_task(self, vector: Tensor, fold: int) -> tuple[Tensor, Coefficients]:
        """The packed rates, and the coefficients of a fold."""
        start = self.rates + fold * COEFFICIENTS
        return vector[: self.rates], Coefficients.of(vector[start : start + COEFFICIENTS])

    def taught(self, taught: Taught) -> Tensor:
        """A client's reply in the first round, as a vector."""
        extremes, gain, right, usual = taught
        sums = (gain.gram, gain.moment, right.gram, right.moment, usual)
        return self._padded(torch.cat([extremes.float(), *(part.flatten().float() for part in sums)]))

    def read_taught(self, vector: Tensor) -> Taught:
        """A client's reply in the first round."""
        sizes = self._taught_sizes
        extremes, *parts = vector[: sum(sizes)].double().split(sizes)
        gain = Sums(parts[0].reshape(GAIN, GAIN), parts[1])
        right = Sums(parts[2].reshape(RIGHT, RIGHT), parts[3])
        return Taught(extremes, gain, right, parts[4].reshape(RANGE, RANGE))

    def examined(self, exams: list[Exam], estimated_right: float) -> Tensor:
        """A client's reply in the second round."""
        return self._padded(torch.tensor([*(number for exam in exams for number in exam), estimated_right]))

    def read_examined(self, vector: Tensor) -> tuple[list[Exam], float]:
        """The exams of all lessons, and the estimated number of right predictions of the plain model."""
        size = len(Exam._fields)
        numbers = vector[: size * len(LESSONS) + 1].tolist()
        return [Exam(*numbers[size * k : size * (k + 1)]) for k in range(len(LESSONS))], numbers[-1]

    def fault(self, round_number: int, reply: Tensor, samples: int) -> str | None:
        """Why a reply of a client with this many samples is impossible; None if it is possible."""
        if not bool(reply.isfinite().all()):
            return "its result is not finite"
        return (self._taught_fault if round_number == TEACH else self._examined_fault)(reply, samples)

    def _taught_fault(self, reply: Tensor, samples: int) -> str | None:
        extremes, gain, right, usual = self.read_taught(reply)
        if bool((extremes < 0).any()):
            return "it has a negative norm or size"
        batches = samples * sum(lesson.fits for lesson in LESSONS)
        found = (_fault(gain, len(LESSONS)), _fault(right, samples), _fault(Sums(usual, usual[0]), batches))
        return next((fault for fault in found if fault), None)

    def _examined_fault(self, reply: Tensor, samples: int) -> str | None:
        exams, estimated_right = self.read_examined(reply)
        counts = [number for exam in exams for number in exam[:5]]
        if any(number != int(number) or not 0 <= number <= samples for number in counts):
            return f"it has counts that are not whole numbers from 0 to {samples}"
        if any(max(exam[1:5]) > exam.samples for exam in exams):
            return "it has more right predictions than samples"
        most = _LARGEST_ESTIMATE * samples
        if any(abs(exam.gained) > most for exam in exams):
            return f"it has estimated gains beyond {most:g} predictions"
        if abs(estimated_right) > most:
            return f"it has an estimate of more than {most:g} right predictions"
        return None

    def _padded(self, vector: Tensor) -> Tensor:
        return torch.cat([vector, vector.new_zeros(self.length - len(vector))])


def _fault(sums: Sums, most: int) -> str | None:
    """Why sums with at most this weight are impossible, by the Cauchy-Schwarz inequality.

    The first feature is 1, and targets are from -1 to 1, or the first feature.
    """
    squares = sums.gram.diagonal()
    count = float(squares[0])
    if not 0 <= count <= most * (1 + 1e-6) or bool((squares < 0).any()):
        return f"it has sums over {count:g} samples, not 0 to {most}, or negative squares"
    limits, tolerance = squares.sqrt(), 1e-4 * (1 + float(squares.max()))
    if bool(((sums.gram - sums.gram.T).abs() > tolerance).any()):
        return "it has products that are not symmetric"
    if bool((sums.gram.abs() > limits * limits[:, None] + tolerance).any()) or bool(
        (sums.moment.abs() > limits * count**0.5 + tolerance).any()
    ):
        return "it has products that are larger than their squares allow"
    return None
