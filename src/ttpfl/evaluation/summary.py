"""What a comparison says: means, differences, ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttpfl.evaluation.comparison import Comparison

BASELINE = "none"
RESAMPLES = 10_000


@dataclass(frozen=True)
class Line:
    """One method over all clients. Accuracies in percent."""

    method: str
    accuracy: float
    worst_decile: float
    """Mean accuracy of the tenth of clients with the lowest."""
    difference: float
    """To no adaptation, mean over clients."""
    interval: tuple[float, float]
    """Of the difference: 95 %, paired, by resampling clients."""
    harmed: int
    """Clients with a lower accuracy than without adaptation."""
    loss: float
    ece: float
    entropy: float
    time: float
    """Per batch, in plain forward passes (median over clients)."""
    extra_bytes: float


def lines(comparison: Comparison) -> list[Line]:
    """A line for each method, in the order of the comparison."""
    base = np.array(comparison.of(BASELINE)) if BASELINE in comparison.methods else None
    return [_line(comparison, method, base) for method in comparison.methods]


def _line(comparison: Comparison, method: str, base: NDArray[np.float64] | None) -> Line:
    accuracy = np.array(comparison.of(method))
    difference = accuracy - base if base is not None else np.full(len(accuracy), np.nan)
    worst = np.sort(accuracy)[: max(1, round(len(accuracy) / 10))]
    costs = [row["cost"] for row in comparison.rows if row["method"] == method]
    means = {name: float(np.mean(comparison.of(method, name))) for name in ("loss", "ece", "entropy")}
    return Line(
        method,
        accuracy=100 * float(accuracy.mean()),
        worst_decile=100 * float(worst.mean()),
        difference=100 * float(difference.mean()),
        interval=interval(100 * difference),
        harmed=int((difference < 0).sum()),
        **means,
        time=float(np.median([cost["time"] for cost in costs])),
        extra_bytes=float(np.median([cost["extra_bytes"] for cost in costs])),
    )


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The mean's 95 % interval when clients are drawn again, always with the same random numbers.

    >>> interval(np.array([1.0, 1.0, 1.0]))
    (1.0, 1.0)
    """
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(1), [2.5, 97.5])
    return float(low), float(high)


def average_ranks(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean over settings of each method's rank by accuracy; 1 is best, ties share their ranks.

    >>> average_ranks([{"none": 60.0, "em": 70.0}, {"none": 50.0, "em": 50.0}])
    {'none': 1.75, 'em': 1.25}
    """
    methods = list(tables[0])
    ranks = [
        [
            sum(table[other] > table[method] for other in methods)
            + (sum(table[other] == table[method] for other in methods) + 1) / 2
            for method in methods
        ]
        for table in tables
    ]
    return dict(zip(methods, np.mean(ranks, axis=0).tolist(), strict=True))
