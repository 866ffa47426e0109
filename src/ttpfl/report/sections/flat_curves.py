"""Whether target clients gain from rounds in which source clients do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from ttpfl.report.numbers import listed, plain, signed

SOURCE = {"train": "source, training data", "validation": "source, validation data"}
RISING = 2.0  # points of accuracy that source clients gain at least
FLAT = 1.0  # points of accuracy by which target clients change at most


@dataclass(frozen=True)
class Curve:
    """One figure over the rounds."""

    case: str
    stage: str
    seed: int
    name: str
    loss: bool
    points: tuple[tuple[int, float], ...]


def flat_targets(curves: Sequence[Curve]) -> Iterator[str]:
    """A sentence for each stage of a case in which accuracy rises only at source clients.

    Curves are compared between the first and the last round in which target clients were evaluated. A curve's
    change is that from the first quarter of these rounds to the last, averaged over seeds.
    """
    accuracies = [curve for curve in curves if not curve.loss]
    for case, stage in dict.fromkeys((curve.case, curve.stage) for curve in accuracies):
        in_stage = [curve for curve in accuracies if (curve.case, curve.stage) == (case, stage)]
        evaluated = [x for curve in in_stage if curve.name not in SOURCE.values() for x, _ in curve.points]
        if len(set(evaluated)) < 2:
            continue
        changes = _changes(in_stage, min(evaluated), max(evaluated))
        rise = changes.pop(SOURCE["validation"], 0.0)
        changes.pop(SOURCE["train"], None)
        if rise >= RISING and max(map(abs, changes.values())) < FLAT:
            targets = "; ".join(f"{name}: {signed(change, 1)}" for name, change in changes.items())
            yield (
                f"{listed(stage, case)}: after round {min(evaluated)}, accuracy still rises by "
                f"{plain(rise, 1)} points at source clients but changes by less than {FLAT:g} point at "
                f"target clients ({targets}), which gain nothing visible from these rounds."
            )


def _changes(curves: Sequence[Curve], first: int, last: int) -> dict[str, float]:
    """Change of each curve between two rounds, by name."""
    changes: dict[str, list[float]] = {}
    for curve in curves:
        if values := [y for x, y in curve.points if first <= x <= last]:
            changes.setdefault(curve.name, []).append(_change(values))
    return {name: fmean(of_seeds) for name, of_seeds in changes.items()}


def _change(values: Sequence[float]) -> float:
    """From the mean of the first quarter to that of the last, in points.

    >>> round(_change([0.5, 0.6, 0.6, 0.7]), 6)
    20.0
    """
    quarter = max(1, len(values) // 4)
    return 100 * (fmean(values[-quarter:]) - fmean(values[:quarter]))
