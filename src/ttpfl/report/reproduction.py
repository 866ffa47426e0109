"""Results next to the paper's figures: differences, in standard deviations too, and the order of methods."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from ttpfl.errors import ReportError
from ttpfl.evaluation.summary import Spread
from ttpfl.report.study import Study, study
from ttpfl.report.tables import heading, table, training_rounds

POINTS, DEVIATIONS = 1.0, 2.0
"""What the summary counts as close."""


@dataclass(frozen=True)
class Cell:
    """One of the paper's figures, and ours, in percent."""

    method: str
    case: str
    paper: Spread
    ours: Spread

    @property
    def difference(self) -> float:
        """Ours minus the paper's, in points."""
        return self.ours.mean - self.paper.mean

    @property
    def deviations(self) -> float:
        """The difference in standard deviations; NaN if no positive one is known.

        The deviation is the root mean square of the paper's and ours; with a single seed, the paper's alone.

        >>> round(Cell("none", "hybrid", Spread(60.0, 0.6), Spread(61.0, 0.8)).deviations, 3)
        1.414
        """
        if math.isnan(self.ours.deviation):
            deviation = self.paper.deviation
        else:
            deviation = math.hypot(self.paper.deviation, self.ours.deviation) / math.sqrt(2)
        return self.difference / deviation if deviation > 0 else math.nan


@dataclass(frozen=True)
class Order:
    """Pairs of methods in the same case, and how many of them are in the paper's order."""

    same: int
    pairs: int

    def __str__(self) -> str:
        return f"{self.same} of {self.pairs} ({100 * self.same / self.pairs:.0f} %)" if self.pairs else ""


def cells(checked: Study) -> list[Cell]:
    """Every figure of a table that the paper has as well."""
    return [
        Cell(label, case.name or checked.metric, case.paper[label], case.accuracy[label])
        for label in checked.labels
        for case in checked.cases
        if label in case.paper
    ]


def order(figures: Iterable[Cell]) -> Order:
    """How many pairs of methods are in the paper's order; equal figures here are in no order.

    >>> figures = [("none", 60.0, 50.0), ("em", 70.0, 49.0), ("atp-batch", 75.0, 55.0)]
    >>> print(order(Cell(name, "", Spread(paper), Spread(ours)) for name, paper, ours in figures))
    2 of 3 (67 %)
    """
    ordered = [
        (one.paper.mean - other.paper.mean) * (one.ours.mean - other.ours.mean) > 0
        for one, other in combinations(figures, 2)
        if one.case == other.case and one.paper.mean != other.paper.mean
    ]
    return Order(sum(ordered), len(ordered))


def as_data(results: object) -> dict[str, Any]:
    """The figures and their order as plain data."""
    found = cells(study(results))
    rows = [{**asdict(cell), "difference": cell.difference, "deviations": cell.deviations} for cell in found]
    return {"figures": rows, "order": asdict(order(found))}


def reproduction(results: Sequence[object]) -> str:
    """A Markdown summary of all results that the paper has figures for, and a table for each."""
    compared = [(checked, found) for checked in map(study, results) if (found := cells(checked))]
    if not compared:
        raise ReportError("the paper has no figures for these results: name others")
    rows = [_summary(checked, found) for checked, found in compared]
    close = [f"within {POINTS:g} point", f"within {DEVIATIONS:g} standard deviations"]
    header = ["recipe", "preset", "cases", "rounds", "seeds", "figures", *close, "pairs in the paper's order"]
    summary = table(header, rows, texts=3)
    return "\n\n".join([summary, *(part for pair in compared for part in _section(*pair))])


def _summary(checked: Study, figures: Sequence[Cell]) -> list[str]:
    recipe = checked.results["recipe"]
    known = [abs(cell.deviations) for cell in figures if not math.isnan(cell.deviations)]
    return [
        f"`{recipe['name']}`",
        recipe.get("preset") or "",
        ", ".join(dict.fromkeys(cell.case for cell in figures)),
        training_rounds(checked),
        f"{len(checked.seeds)}",
        f"{len(figures)}",
        f"{sum(abs(cell.difference) <= POINTS for cell in figures)}",
        f"{sum(value <= DEVIATIONS for value in known)} of {len(known)}" if known else "",
        str(order(figures)),
    ]


def _section(checked: Study, figures: Sequence[Cell]) -> Iterator[str]:
    """The title with the circumstances, the figures, and the order."""
    yield heading(checked)
    rows = [
        [
            cell.method,
            cell.case,
            str(cell.paper),
            str(cell.ours),
            f"{cell.difference:+.2f}",
            "" if math.isnan(cell.deviations) else f"{cell.deviations:+.1f}",
        ]
        for cell in figures
    ]
    yield table(["method", "case", "paper", "here", "difference", "standard deviations"], rows, texts=2)
    if (found := order(figures)).pairs:
        yield f"Pairs of methods in the paper's order: {found}."
