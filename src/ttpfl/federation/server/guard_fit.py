"""The server's part of learning a guard: fit without each fold of clients, and examine on that fold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.gain import GAIN, RANGE, RIGHT, Coefficients, Sums
from ttpfl.core.guard import Estimator, Guard
from ttpfl.core.influence import Extremes, limits_of
from ttpfl.core.lessons import LESSONS
from ttpfl.federation.common.guard_vector import FOLDS, Exam, GuardVector

Exams = list[tuple[list[Exam], float]]


def fitted(replies: Mapping[int, Tensor], layout: GuardVector) -> tuple[list[Coefficients], Coefficients]:
    """What all clients but each fold taught, and what all clients taught."""
    folds = [_fitted(replies, layout, without=fold) for fold in range(FOLDS)]
    return folds, _fitted(replies, layout, without=None)


def _fitted(replies: Mapping[int, Tensor], layout: GuardVector, without: int | None) -> Coefficients:
    gain, right, usual = Sums.zeros(GAIN), Sums.zeros(RIGHT), Sums.zeros(RANGE).gram
    for client, vector in replies.items():
        if client % FOLDS != without:
            taught = layout.read_taught(vector)
            gain, right, usual = gain + taught.gain, right + taught.right, usual + taught.usual
    return Coefficients.fitted(gain, right, usual)


def guard_of(
    names: list[str],
    taught: Mapping[int, Tensor],
    examined: Mapping[int, Tensor],
    layout: GuardVector,
    coefficients: Coefficients,
) -> Guard:
    """The guard, from the clients' replies in both rounds."""
    extremes = torch.stack([layout.read_taught(vector).extremes for vector in taught.values()])
    norms, jumps, spread, batch_size = extremes.split([layout.modules, layout.modules, 1, 1], dim=1)
    limits = limits_of(names, Extremes(norms, jumps, spread, batch_size))
    exams = [layout.read_examined(vector) for vector in examined.values()]
    if not any(lessons[0].samples for lessons, _ in exams):  # no classes
        return Guard(limits)
    gain_errors = [one[0].gained - _gain(one[0]) for one, _ in exams]
    plain_errors = [estimated - one[0].plain_right for one, estimated in exams]
    samples = [one[0].samples for one, _ in exams]
    errors = (_root_mean_square(gain_errors, samples), _root_mean_square(plain_errors, samples))
    numbers = tuple(coefficients.numbers.tolist())
    return Guard(limits, Estimator(numbers, false_alarm_rate(exams), *errors, _measured(exams)))


def false_alarm_rate(exams: Exams) -> float:
    """Probability that a client like these, at which adaptation helps, has an alarm.

    A new client is equally likely to have any rank among them: if one of 19 has an alarm, the next one has
    it with a probability of at most two in twenty.
    """
    fits = [number for number, lesson in enumerate(LESSONS) if lesson.fits]
    clients = [[lessons[number] for number in fits] for lessons, _ in exams]
    gaining = [lessons for lessons in clients if all(_gain(exam) >= 0 for exam in lessons)]
    alarms = sum(any(exam.alarms for exam in lessons) for lessons in gaining)
    return (alarms + 1) / (len(gaining) + 1)


def _measured(exams: Exams) -> dict[str, Any]:
    """Error rates at held-out clients, for each lesson that they took."""
    by_lesson = {}
    for number, lesson in enumerate(LESSONS):
        taken = [lessons[number] for lessons, _ in exams if lessons[number].samples]
        if not taken:
            continue
        share = 1 / len(taken)
        gained, lost = (sum(max(0.0, sign * _gain(exam)) for exam in taken) for sign in (1, -1))
        kept = sum(exam.guarded_right - exam.plain_right for exam in taken if _gain(exam) > 0)
        passed = sum(max(0.0, exam.plain_right - exam.guarded_right) for exam in taken if _gain(exam) < 0)
        rates = {
            "alarms": share * sum(exam.alarms > 0 for exam in taken),
            "false_alarms": share * sum(exam.alarms > 0 and _gain(exam) >= 0 for exam in taken),
            "harm_passed": passed / lost if lost else 0.0,
            "gain_given_away": 1 - kept / gained if gained else 0.0,
        }
        rounded = {name: round(value, 4) for name, value in rates.items()}
        by_lesson[lesson.name] = {"clients": len(taken), **rounded}
    return by_lesson


def _gain(exam: Exam) -> float:
    return exam.adapted_right - exam.plain_right


def _root_mean_square(errors: Sequence[float], samples: Sequence[float]) -> float:
    squares = [(error / count) ** 2 for error, count in zip(errors, samples, strict=True) if count]
    return math.sqrt(sum(squares) / max(1, len(squares)))
