"""Results grouped by case, with summaries per case and overall, ranks, and the paper's figures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import cast

import numpy as np

from ttpfl.errors import ReportError
from ttpfl.evaluation.summary import Lead, Line, Spread, average_ranks, lead, lines
from ttpfl.report.numbers import listed
from ttpfl.results.comparison import Comparison
from ttpfl.results.files import checked_results, checked_samples
from ttpfl.results.schema import HEADLINES, METRICS, MethodResult, Results, Run, Samples, ToyExample

Identity = tuple[str, str]
"""A client across runs: the digest of its population, and its id there."""


@dataclass(frozen=True)
class Case:
    """All runs of one case, one per seed."""

    name: str
    runs: tuple[Run, ...]
    paper: dict[str, Spread]
    """By label, where the paper has figures; NaN for a deviation that it does not state."""

    @cached_property
    def accuracy(self) -> dict[str, Spread]:
        """By label: the mean over seeds of the mean over clients, in percent."""
        return {entry["label"]: _spread(self.runs, entry["label"]) for entry in self.runs[0]["entries"]}

    @cached_property
    def lines(self) -> dict[str, Line]:
        """By label, over the clients of all seeds."""
        return _lines(_comparison(self.runs, list(self.accuracy)))

    @cached_property
    def clients(self) -> int:
        """The number of clients over all seeds."""
        return len(set(_identities(self.runs)))

    def vs_paper(self, label: str) -> float:
        """Measured accuracy minus the paper's, in points; NaN where the paper has none."""
        return self.accuracy[label].mean - self.paper[label].mean if label in self.paper else math.nan


@dataclass(frozen=True)
class Ranking:
    """Average ranks over the cases by label (1 is best), here and by the paper's figures."""

    title: str
    here: dict[str, float]
    paper: dict[str, float]
    """Among the same methods; empty if the paper lacks any of them."""


@dataclass(frozen=True)
class Study:
    """Results by case, and summaries over all cases."""

    results: Results
    samples: Samples | None
    cases: tuple[Case, ...]

    @property
    def metric(self) -> str:
        """The name of the main metric in a sentence."""
        return HEADLINES[Comparison(self.results["runs"][0]).headline]

    @cached_property
    def labels(self) -> list[str]:
        """All methods, in the order of the file."""
        return list(dict.fromkeys(label for case in self.cases for label in case.accuracy))

    @cached_property
    def common(self) -> list[str]:
        """Methods that every case has. Only these can be ranked over cases."""
        return [label for label in self.labels if all(label in case.accuracy for case in self.cases)]

    @cached_property
    def overall(self) -> dict[str, Line]:
        """Lines of the common methods over the clients of all cases and seeds.

        A client of several cases counts once, with its mean over them: it is a single draw.
        """
        return _lines(self._all_clients)

    def lead(self, label: str, other: str) -> Lead:
        """By how much one common method leads another over the same clients."""
        return lead(self._all_clients, label, other)

    @cached_property
    def _all_clients(self) -> Comparison:
        return _comparison(self.results["runs"], self.common)

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The average rank of each common method over the cases; 1 is best."""
        return average_ranks(_means(self.cases, self.common)) if self.common else {}

    @cached_property
    def order(self) -> list[str]:
        """Common methods, best first: by average rank, then by accuracy over all clients."""
        return sorted(self.common, key=lambda label: (self.ranks[label], -self.overall[label].accuracy))

    @cached_property
    def rankings(self) -> list[Ranking]:
        """Rankings over several cases: of all common methods, and of the paper's methods if these are fewer.

        The ranks printed in the paper may differ slightly: here, methods with equal figures share a rank.
        """
        if len(self.cases) == 1 or len(self.common) < 2 or self.toy is not None:
            return []
        in_paper = [label for label in self.common if all(label in case.paper for case in self.cases)]
        papers = [{label: case.paper[label].mean for label in in_paper} for case in self.cases]
        overall = Ranking(
            "average rank", self.ranks, average_ranks(papers) if in_paper == self.common else {}
        )
        if in_paper == self.common or len(in_paper) < 2:
            return [overall]
        here = average_ranks(_means(self.cases, in_paper))
        return [overall, Ranking("rank among the paper's", here, average_ranks(papers))]

    @property
    def leaders(self) -> list[str]:
        """The best of the common methods; several if they share a rank."""
        return [label for label in self.order if self.ranks[label] == self.ranks[self.order[0]]]

    @property
    def toy(self) -> ToyExample | None:
        """The toy example, if this is its run; its cases are rates."""
        return next((run["toy"] for run in self.results["runs"] if "toy" in run), None)

    @cached_property
    def clients(self) -> int:
        """The number of distinct clients over all cases and seeds."""
        return len(set(_identities(self.results["runs"])))

    @property
    def shared(self) -> bool:
        """Whether some clients occur in several cases."""
        return self.clients < sum(case.clients for case in self.cases)

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({run["seed"] for run in self.results["runs"]})

    def title(self, case: str, seed: int) -> str:
        """The name of a run: its case, unnamed if it is the only one, and its seed if there are several."""
        return listed(case, f"seed {seed}" if len(self.seeds) > 1 else "")

    def case(self, name: str) -> Case | None:
        """The case of this name."""
        return next((case for case in self.cases if case.name == name), None)


def study(content: object, samples: object = None) -> Study:
    """Check the content of a `results.json` and, optionally, of a `samples.json`, and group runs by case."""
    results, images = checked_results(content), None if samples is None else checked_samples(samples)
    names = dict.fromkeys(run["case"] for run in results["runs"])
    if len(headlines := {Comparison(run).headline for run in results["runs"]}) > 1:
        raise ReportError(
            f"the runs have different headlines ({', '.join(sorted(headlines))}): report them apart"
        )
    return Study(results, images, tuple(_case(results, name) for name in names))


def _case(results: Results, name: str) -> Case:
    runs = tuple(run for run in results["runs"] if run["case"] == name)
    labels = {entry["label"] for entry in runs[0]["entries"]}
    paper = {label: row[name] for label, row in results["paper"].items() if name in row and label in labels}
    return Case(name, runs, {label: Spread(*figures) for label, figures in paper.items()})


def _means(cases: Sequence[Case], labels: Sequence[str]) -> list[dict[str, float]]:
    return [{label: case.accuracy[label].mean for label in labels} for case in cases]


def _identities(runs: Sequence[Run]) -> Iterator[Identity]:
    return ((run["population"]["digest"], client["id"]) for run in runs for client in run["clients"])


def _lines(comparison: Comparison) -> dict[str, Line]:
    return {line.method: line for line in lines(comparison)}


def _comparison(runs: Sequence[Run], labels: Sequence[str]) -> Comparison:
    """All clients of these runs. A client of several runs counts once, with its mean."""
    identities = list(_identities(runs))

    def merged(label: str, metric: str) -> list[float]:
        """Means rounded so that floating-point noise does not count as harm."""
        values = chain.from_iterable(Comparison(run).of(label, metric) for run in runs)
        by_client: dict[Identity, list[float]] = {}
        for identity, value in zip(identities, values, strict=True):
            by_client.setdefault(identity, []).append(value)
        return [round(fmean(values), 12) for values in by_client.values()]

    clients = dict(zip(identities, (client for run in runs for client in run["clients"]), strict=True))
    entries = [{"label": label, **{name: merged(label, name) for name in METRICS}} for label in labels]
    return Comparison(
        {**runs[0], "clients": list(clients.values()), "entries": cast(list[MethodResult], entries)}
    )


def _spread(runs: Sequence[Run], label: str) -> Spread:
    return Spread.of([100 * float(np.mean(Comparison(run).of(label))) for run in runs])
