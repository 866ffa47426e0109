"""What follows from results: the lines of each case and of all together, ranks, what the paper has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ttpfl.evaluation.comparison import Comparison, Row
from ttpfl.evaluation.summary import BASELINE, Line, Spread, average_ranks, lines
from ttpfl.report.numbers import listed
from ttpfl.report.schema import Entry, Results, Run, Samples


@dataclass(frozen=True)
class Case:
    """All runs of one case; they differ in their seeds."""

    name: str
    runs: tuple[Run, ...]
    lines: dict[str, Line]
    """By label, over the clients of all seeds."""
    spread: dict[str, float]
    """By label: standard deviation over seeds of the mean accuracy, in percent; NaN for a single seed."""
    paper: dict[str, tuple[float, float]]
    """By label: mean and standard deviation in percent, where the paper has them."""

    @property
    def clients(self) -> int:
        """How many, over all seeds."""
        return sum(len(run["clients"]) for run in self.runs)

    def to_paper(self, label: str) -> float:
        """Measured accuracy less the paper's, in points; NaN where the paper has none."""
        return self.lines[label].accuracy - self.paper[label][0] if label in self.paper else math.nan


@dataclass(frozen=True)
class Study:
    """Results, by case, and what is said of all cases together."""

    results: Results
    samples: Samples | None
    cases: tuple[Case, ...]

    @cached_property
    def labels(self) -> list[str]:
        """Every method, in the order of the file."""
        return list(dict.fromkeys(label for case in self.cases for label in case.lines))

    @cached_property
    def common(self) -> list[str]:
        """Methods that are in every case: only these can be ranked over cases."""
        return [label for label in self.labels if all(label in case.lines for case in self.cases)]

    @cached_property
    def overall(self) -> dict[str, Line]:
        """Lines of the common methods over the clients of all cases and seeds."""
        return _lines(self.results["runs"], self.common)

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The average rank of each common method over the cases; 1 is best."""
        tables = [{label: case.lines[label].accuracy for label in self.common} for case in self.cases]
        return average_ranks(tables) if self.common else {}

    @cached_property
    def order(self) -> list[str]:
        """Common methods from the best: by average rank, then by accuracy over all clients."""
        return sorted(self.common, key=lambda label: (self.ranks[label], -self.overall[label].accuracy))

    @cached_property
    def clients(self) -> int:
        """How many, over all cases and seeds."""
        return sum(case.clients for case in self.cases)

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({run["seed"] for run in self.results["runs"]})

    def title(self, case: str, seed: int) -> str:
        """How a run is called: by its case, which may have no name if it is the only one, and its seed."""
        return listed(case, f"seed {seed}" if len(self.seeds) > 1 else "")

    def case(self, name: str) -> Case | None:
        """The case of this name."""
        return next((case for case in self.cases if case.name == name), None)


def study(results: Results, samples: Samples | None = None) -> Study:
    """Group the runs by case and summarise them."""
    names = dict.fromkeys(run["case"] for run in results["runs"])
    return Study(results, samples, tuple(_case(results, name) for name in names))


def entry_of(run: Run, label: str) -> Entry | None:
    """The run's entry with this label."""
    return next((entry for entry in run["entries"] if entry["label"] == label), None)


def _case(results: Results, name: str) -> Case:
    runs = tuple(run for run in results["runs"] if run["case"] == name)
    labels = [entry["label"] for entry in runs[0]["entries"]]
    paper = {
        label: (figures[name][0], figures[name][1] if len(figures[name]) > 1 else math.nan)
        for label, figures in results["paper"].items()
        if name in figures and label in labels
    }
    return Case(name, runs, _lines(runs, labels), {label: _spread(runs, label) for label in labels}, paper)


def _lines(runs: Sequence[Run], labels: Sequence[str]) -> dict[str, Line]:
    rows = [row for label in labels for run in runs for row in _rows(run, label)]
    return {line.method: line for line in lines(Comparison(rows, {}))}


def _rows(run: Run, label: str) -> list[Row]:
    """An entry as the rows of a comparison, in which its label is the method's name."""
    entry = entry_of(run, label)
    assert entry is not None  # checked when it was read
    return [
        {
            "method": label,
            "client": f"{run['case']} {run['seed']} {client['id']}",
            "accuracy": entry["accuracy"][number],
            **{name: _number(entry[name][number]) for name in ("loss", "ece", "entropy")},
            "cost": {name: _number(entry[name][number]) for name in ("time", "extra_bytes")},
        }
        for number, client in enumerate(run["clients"])
    ]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _spread(runs: Sequence[Run], label: str) -> float:
    found = [entry["accuracy"] for run in runs if (entry := entry_of(run, label))]
    return Spread.of([100 * sum(accuracies) / len(accuracies) for accuracies in found]).deviation


__all__ = ["BASELINE", "Case", "Study", "entry_of", "study"]
