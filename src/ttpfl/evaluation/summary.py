"""Summaries of comparisons: means, differences, spread over seeds, ranks."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import HEADLINES

BASELINE = "none"
RESAMPLES = 10_000

Interval = tuple[float, float]
"""The bounds of a 95 % interval."""


@dataclass(frozen=True)
class Line:
    """One method over all clients; accuracies in percent.

    If the run has another main metric, such as balanced accuracy, that takes the place of the accuracy.
    """

    method: str
    accuracy: float
    worst_decile: float
    """Mean accuracy of the lowest tenth of clients."""
    difference: float
    """Mean difference to no adaptation."""
    interval: Interval | None
    """Paired bootstrap interval of the difference; None if there is nothing to resample."""
    harmed: int | None
    """Clients with a lower accuracy than without adaptation; None if that was not run."""
    loss: float
    ece: float
    entropy: float
    time: float
    """Median cost, as `ttpfl.results.schema.COST` defines it."""
    extra_bytes: float
    scores: Mapping[str, float]
    """Means of the metrics in `ttpfl.results.schema.HEADLINES`, in percent, if they were measured."""


def lines(comparison: Comparison) -> list[Line]:
    """A line for each method."""
    base = np.array(comparison.of(BASELINE)) if BASELINE in comparison.methods else None
    return [_line(comparison, method, base) for method in comparison.methods]


def _line(comparison: Comparison, method: str, base: NDArray[np.float64] | None) -> Line:
    accuracy = np.array(comparison.of(method))
    difference = np.full(len(accuracy), np.nan) if base is None else accuracy - base
    worst = np.sort(accuracy)[: max(1, round(len(accuracy) / 10))]

    def column(name: str) -> NDArray[np.float64]:
        return np.array(comparison.of(method, name))

    return Line(
        method,
        accuracy=100 * float(accuracy.mean()),
        worst_decile=100 * float(worst.mean()),
        difference=100 * float(difference.mean()),
        interval=None if base is None else interval(100 * difference),
        harmed=None if base is None else int((difference < 0).sum()),
        loss=float(column("loss").mean()),
        ece=float(column("ece").mean()),
        entropy=float(column("entropy").mean()),
        time=float(np.median(column("time"))),
        extra_bytes=float(np.median(column("extra_bytes"))),
        scores={name: 100 * mean for name in HEADLINES if math.isfinite(mean := float(column(name).mean()))},
    )


def interval(values: NDArray[np.float64]) -> Interval | None:
    """The bootstrap interval of the mean, with fixed random numbers; None for a single value.

    >>> interval(np.array([1.0, 1.0, 1.0]))
    (1.0, 1.0)
    >>> interval(np.array([1.0])) is None
    True
    """
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(1), [2.5, 97.5])
    return float(low), float(high)


class Lead(NamedTuple):
    """The mean difference between two methods in percentage points, paired by client."""

    points: float
    interval: Interval | None

    @property
    def is_clear(self) -> bool:
        """Whether the whole interval is positive."""
        return self.interval is not None and self.interval[0] > 0


def lead(comparison: Comparison, method: str, other: str) -> Lead:
    """The lead of `method` over `other`; negative if it is behind."""
    points = 100 * (np.array(comparison.of(method)) - np.array(comparison.of(other)))
    return Lead(float(points.mean()), interval(points))


class Spread(NamedTuple):
    """A method's accuracy in percent over several seeds, printed as mean ± standard deviation.

    >>> print(Spread.of([70.0, 72.0, 74.0]), Spread.of([70.0]))
    72.00±2.00 70.00
    """

    mean: float
    """Mean over seeds of the mean over clients."""
    deviation: float = math.nan
    """Sample standard deviation over seeds; NaN if unknown."""

    @classmethod
    def of(cls, means: Sequence[float]) -> "Spread":
        """The spread of the means of seeds."""
        return cls(statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else math.nan)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if math.isnan(self.deviation) else f"±{self.deviation:.2f}")


def average_ranks(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each method's mean rank by accuracy over settings; 1 is best, ties share their ranks.

    >>> average_ranks([{"none": 60.0, "em": 70.0}, {"none": 50.0, "em": 50.0}])
    {'none': 1.75, 'em': 1.25}
    """
    if not tables:
        raise DataError("no settings: pass at least one")
    for number, table in enumerate(tables):
        if differing := ", ".join(sorted(set(table) ^ set(tables[0]))):
            raise DataError(
                f"settings 0 and {number} do not have the same methods ({differing}): run all of them"
            )
    return {method: statistics.fmean(_rank(table, method) for table in tables) for method in tables[0]}


def _rank(table: Mapping[str, float], method: str) -> float:
    better = sum(other > table[method] for other in table.values())
    equal = sum(other == table[method] for other in table.values())
    return better + (equal + 1) / 2
