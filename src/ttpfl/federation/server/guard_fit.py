"""The server's part of learning a guard: fit without each fold of clients, and examine on that fold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.gain import GAIN, RIGHT, Coefficients, Sums
from ttpfl.core.guard import Estimator, Guard
from ttpfl.core.influence import Extremes, limits_of
from ttpfl.core.lessons import LESSONS
from ttpfl.federation.common.guard_vector import FOLDS, Exam, GuardVector

FALSE_ALARMS = 0.05
"""Largest share of source clients that gain at which the guard may stop adaptation."""

Exams = list[tuple[list[Exam], float]]


def fitted(replies: Mapping[int, Tensor], layout: GuardVector) -> tuple[list[Coefficients], Coefficients]:
    """The models without each fold of clients, and those of all clients."""
    folds = [_solved(replies, layout, without=fold) for fold in range(FOLDS)]
    return folds, _solved(replies, layout, without=None)


def _solved(replies: Mapping[int, Tensor], layout: GuardVector, without: int | None) -> Coefficients:
    gain, right = Sums.zeros(GAIN), Sums.zeros(RIGHT)
    for client, vector in replies.items():
        if client % FOLDS != without:
            _, more_gain, more_right = layout.read_taught(vector)
            gain, right = gain + more_gain, right + more_right
    return Coefficients(gain.solved(), right.solved())


def guard_of(
    names: list[str],
    taught: Mapping[int, Tensor],
    examined: Mapping[int, Tensor],
    layout: GuardVector,
    coefficients: Coefficients,
) -> Guard:
    """The guard, from the clients' replies in both rounds."""
    extremes = torch.stack([layout.read_taught(vector)[0] for vector in taught.values()])
    norms, jumps, spread, batch_size = extremes.split([layout.modules, layout.modules, 1, 1], dim=1)
    limits = limits_of(names, Extremes(norms, jumps, spread, batch_size))
    exams = [layout.read_examined(vector) for vector in examined.values()]
    if not any(lessons[0].samples for lessons, _ in exams):  # no classes
        return Guard(limits)
    threshold, stated = threshold_of([_lowest(lessons) for lessons, _ in exams if _gains(lessons)])
    gain, right = (tuple(map(float, part)) for part in coefficients)
    gain_errors = [one[0].gained - _gain(one[0]) for one, _ in exams]
    plain_errors = [estimated - one[0].plain_right for one, estimated in exams]
    samples = [one[0].samples for one, _ in exams]
    errors = (_root_mean_square(gain_errors, samples), _root_mean_square(plain_errors, samples))
    return Guard(limits, Estimator(gain, right, threshold, stated, *errors, _measured(exams, threshold)))


def threshold_of(lowest: Sequence[float], false_alarms: float = FALSE_ALARMS) -> tuple[float, float]:
    """The threshold that a new client is below with a stated probability, and this probability.

    `lowest` are the lowest estimated gains of held-out clients. A new client is equally likely to have any
    rank among them, so with few clients, the probability is at best one in their number and one more.

    >>> threshold_of([-0.5, 0.0, -2.0])
    (2.0, 0.25)
    >>> threshold_of([-float(n) for n in range(99)])
    (94.0, 0.05)
    """
    losses = sorted(-gain for gain in lowest)
    rank = math.ceil((1 - false_alarms) * (len(losses) + 1))
    if rank > len(losses):
        return (losses[-1] if losses else 0.0), 1 / (len(losses) + 1)
    return losses[rank - 1], false_alarms


def _measured(exams: Exams, threshold: float) -> dict[str, Any]:
    """Error rates at held-out clients, by lesson."""
    by_lesson = {}
    for number, lesson in enumerate(LESSONS):
        taken = [lessons[number] for lessons, _ in exams if lessons[number].samples]
        stopped = [exam for exam in taken if exam.lowest < -threshold]
        passed = [exam for exam in taken if exam.lowest >= -threshold]
        gained, lost = (sum(max(0.0, sign * _gain(exam)) for exam in taken) for sign in (1, -1))
        by_lesson[lesson.name] = {
            "clients": len(taken),
            "stopped": len(stopped) / max(1, len(taken)),
            "false_alarms": sum(_gain(exam) >= 0 for exam in stopped) / max(1, len(taken)),
            "harm_passed": sum(max(0.0, -_gain(exam)) for exam in passed) / lost if lost else 0.0,
            "gain_given_away": sum(max(0.0, _gain(exam)) for exam in stopped) / gained if gained else 0.0,
        }
    return by_lesson


def _gain(exam: Exam) -> float:
    return exam.adapted_right - exam.plain_right


def _gains(lessons: Sequence[Exam]) -> bool:
    return all(_gain(exam) >= 0 for exam, lesson in zip(lessons, LESSONS, strict=True) if lesson.fits)


def _lowest(lessons: Sequence[Exam]) -> float:
    return min(exam.lowest for exam, lesson in zip(lessons, LESSONS, strict=True) if lesson.fits)


def _root_mean_square(errors: Sequence[float], samples: Sequence[float]) -> float:
    squares = [(error / count) ** 2 for error, count in zip(errors, samples, strict=True) if count]
    return math.sqrt(sum(squares) / max(1, len(squares)))
