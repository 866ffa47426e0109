"""What travels when a guard is learned: vectors of one length, in two rounds.

The server sends the rates, and in the second round the coefficients of every fold of clients. Clients reply
with the extremes of their data and with sums for least squares; in the second round with what the
coefficients of their own fold, which were fitted without them, say about their streams.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.gain import GAIN, RIGHT, Coefficients, Sums
from ttpfl.core.lessons import LESSONS

FOLDS = 5
TEACH, EXAMINE = 0, 1
"""Numbers of the rounds."""
_PER_LESSON = 5
_LARGEST_ESTIMATE = 10.0
"""Limit of an estimate per sample, which is at most about 1: it is linear, so it may overshoot."""


class Exam(NamedTuple):
    """A lesson, and what was estimated about it without its labels."""

    samples: float
    plain_right: float
    adapted_right: float
    gained: float
    """Estimated gain, in predictions."""
    lowest: float
    """The lowest estimated gain during the stream."""


class GuardVector(NamedTuple):
    """The layout of the vectors."""

    rates: int
    """Length of the packed rates."""
    modules: int

    @property
    def length(self) -> int:
        """Length of all vectors."""
        sent = self.rates + FOLDS * (GAIN + RIGHT)
        taught = 2 * self.modules + 2 + _sums_length(GAIN) + _sums_length(RIGHT)
        return max(sent, taught, _PER_LESSON * len(LESSONS) + 1)

    def task(self, rates: Tensor, folds: list[Coefficients]) -> Tensor:
        """The server's message."""
        parts = [rates.float(), *(part.float() for fold in folds for part in fold)]
        return self._padded(torch.cat(parts))

    def read_task(self, vector: Tensor, fold: int) -> tuple[Tensor, Coefficients]:
        """The packed rates, and the coefficients of a fold."""
        start = self.rates + fold * (GAIN + RIGHT)
        own = vector[start : start + GAIN + RIGHT].double()
        return vector[: self.rates], Coefficients(*own.split([GAIN, RIGHT]))

    def taught(self, extremes: Tensor, gain: Sums, right: Sums) -> Tensor:
        """A client's reply in the first round."""
        sums = [part for entry in (gain, right) for part in (entry.gram.flatten(), entry.moment)]
        return self._padded(torch.cat([extremes.float(), *(part.float() for part in sums)]))

    def read_taught(self, vector: Tensor) -> tuple[Tensor, Sums, Sums]:
        """Extremes, and the sums of both models."""
        sizes = [2 * self.modules + 2, GAIN * GAIN, GAIN, RIGHT * RIGHT, RIGHT]
        extremes, *parts = vector[: sum(sizes)].double().split(sizes)
        gain = Sums(parts[0].reshape(GAIN, GAIN), parts[1])
        return extremes, gain, Sums(parts[2].reshape(RIGHT, RIGHT), parts[3])

    def examined(self, exams: list[Exam], estimated_right: float) -> Tensor:
        """A client's reply in the second round."""
        return self._padded(torch.tensor([*(number for exam in exams for number in exam), estimated_right]))

    def read_examined(self, vector: Tensor) -> tuple[list[Exam], float]:
        """The exams of all lessons, and the estimated number of right predictions of the plain model."""
        numbers = vector[: _PER_LESSON * len(LESSONS) + 1].tolist()
        starts = range(0, _PER_LESSON * len(LESSONS), _PER_LESSON)
        return [Exam(*numbers[start : start + _PER_LESSON]) for start in starts], numbers[-1]

    def fault(self, round_number: int, reply: Tensor, samples: int) -> str | None:
        """Why a reply of a client with this many samples is impossible; None if it is possible."""
        if not bool(reply.isfinite().all()):
            return "its result is not finite"
        if round_number == TEACH:
            extremes, gain, right = self.read_taught(reply)
            if bool((extremes < 0).any()):
                return "it has a negative norm or size"
            return _fault(gain, len(LESSONS) * samples) or _fault(right, samples)
        exams, estimated_right = self.read_examined(reply)
        counts = [number for exam in exams for number in exam[:3]]
        if any(number != int(number) or not 0 <= number <= samples for number in counts):
            return f"it has counts that are not whole numbers from 0 to {samples}"
        if any(max(exam.plain_right, exam.adapted_right) > exam.samples for exam in exams):
            return "it has more right predictions than samples"
        most = _LARGEST_ESTIMATE * samples
        if any(not -most <= exam.lowest <= min(0.0, exam.gained) <= exam.gained <= most for exam in exams):
            return f"it has estimated gains beyond {most:g} predictions, or below the lowest of the stream"
        if abs(estimated_right) > most:
            return f"it has an estimate of more than {most:g} right predictions"
        return None

    def _padded(self, vector: Tensor) -> Tensor:
        return torch.cat([vector, vector.new_zeros(self.length - len(vector))])


def _fault(sums: Sums, most: int) -> str | None:
    """Why sums over at most this many samples are impossible, by the Cauchy-Schwarz inequality.

    The first feature is 1, or 0 for a sample that does not count, and targets are from -1 to 1.
    """
    squares = sums.gram.diagonal()
    count = float(squares[0])
    if not 0 <= count <= most or bool((squares < 0).any()):
        return f"it has sums over {count:g} samples, not 0 to {most}, or negative squares"
    limits, tolerance = squares.sqrt(), 1e-4 * (1 + float(squares.max()))
    if bool(((sums.gram - sums.gram.T).abs() > tolerance).any()):
        return "it has products that are not symmetric"
    if bool((sums.gram.abs() > limits * limits[:, None] + tolerance).any()) or bool(
        (sums.moment.abs() > limits * count**0.5 + tolerance).any()
    ):
        return "it has products that are larger than their squares allow"
    return None


def _sums_length(features: int) -> int:
    return features * features + features
