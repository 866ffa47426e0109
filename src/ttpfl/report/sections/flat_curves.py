"""Whether target clients gain anything from rounds in which source clients do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from ttpfl.report.numbers import listed, plain, signed

SOURCE = {"train": "source, training data", "validation": "source, validation data"}
RISING = 2.0  # points of accuracy that source clients gain at least
FLAT = 1.0  # points of accuracy by which target clients change at most

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """One figure over the rounds."""

    case: str
    stage: str
    seed: int
    name: str
    loss: bool
    points: tuple[tuple[int, float], ...]


def flat_targets(every: Sequence[Curve]) -> Iterator[str]:
    """A sentence for each stage of a case in which accuracy rises at source clients alone.

    Curves are compared between the first and the last round in which target clients were evaluated. A curve's
    change is that from the first quarter of these rounds to the last, mean over seeds.
    """
    accuracies = [curve for curve in every if not curve.loss]
    for case, stage in dict.fromkeys((curve.case, curve.stage) for curve in accuracies):
        own = [curve for curve in accuracies if (curve.case, curve.stage) == (case, stage)]
        looked = [x for curve in own if curve.name not in SOURCE.values() for x, _ in curve.points]
        if len(set(looked)) < 2:
            continue
        changes = _changes(own, min(looked), max(looked))
        rise = changes.pop(SOURCE["validation"], 0.0)
        changes.pop(SOURCE["train"], None)
        if rise >= RISING and max(map(abs, changes.values())) < FLAT:
            told = "; ".join(f"{name}: {signed(change, 1)}" for name, change in changes.items())
            yield (
                f"{listed(stage, case)}: at source clients accuracy still rises by {plain(rise, 1)} points "
                f"after round {min(looked)}, while at target clients it is flat ({told}; flat is a change of "
                f"less than {FLAT:g} point). At target clients, no gain from these rounds is visible."
            )


def _changes(curves: Sequence[Curve], first: int, last: int) -> dict[str, float]:
    """By name, between two rounds."""
    found: dict[str, list[float]] = {}
    for curve in curves:
        between = [(x, y) for x, y in curve.points if first <= x <= last]
        if between:
            found.setdefault(curve.name, []).append(_change(between))
    return {name: fmean(changes) for name, changes in found.items()}


def _change(points: Points) -> float:
    """From the mean of the first quarter to that of the last, in points of accuracy.

    >>> round(_change([(0, 0.5), (1, 0.6), (2, 0.6), (3, 0.7)]), 6)
    20.0
    """
    quarter = max(1, len(points) // 4)
    first, last = points[:quarter], points[-quarter:]
    return 100 * (fmean(y for _, y in last) - fmean(y for _, y in first))
