"""What follows from results: the lines of each case and of all together, ranks, what the paper has."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import cast

import numpy as np

from ttpfl.evaluation.summary import Lead, Line, Spread, average_ranks, lead, lines
from ttpfl.report.numbers import listed
from ttpfl.results.comparison import Comparison
from ttpfl.results.files import checked_results, checked_samples
from ttpfl.results.schema import METRICS, MethodResult, Results, Run, Samples, ToyExample

Identity = tuple[str, str]
"""Who a client is, in whatever run: the digest of its population, and its id there."""


@dataclass(frozen=True)
class Case:
    """All runs of one case; they differ in their seeds."""

    name: str
    runs: tuple[Run, ...]
    paper: dict[str, Spread]
    """By label, where the paper has figures; a deviation that it does not give is NaN."""

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
        """How many, over all seeds."""
        return len(set(_identities(self.runs)))

    def to_paper(self, label: str) -> float:
        """Measured accuracy less the paper's, in points; NaN where the paper has none."""
        return self.accuracy[label].mean - self.paper[label].mean if label in self.paper else math.nan


@dataclass(frozen=True)
class Ranking:
    """Average ranks over the cases by label, 1 is best, and those that the paper's figures give."""

    title: str
    here: dict[str, float]
    paper: dict[str, float]
    """Among the same methods; empty where the paper does not have all of them."""


@dataclass(frozen=True)
class Study:
    """Results, by case, and what is said of all cases together."""

    results: Results
    samples: Samples | None
    cases: tuple[Case, ...]

    @cached_property
    def labels(self) -> list[str]:
        """Every method, in the order of the file."""
        return list(dict.fromkeys(label for case in self.cases for label in case.accuracy))

    @cached_property
    def common(self) -> list[str]:
        """Methods that are in every case: only these can be ranked over cases."""
        return [label for label in self.labels if all(label in case.accuracy for case in self.cases)]

    @cached_property
    def overall(self) -> dict[str, Line]:
        """Lines of the common methods over the clients of all cases and seeds.

        A client that is in several cases counts once, with its mean over them: it is one draw.
        """
        return _lines(self._everywhere)

    def lead(self, label: str, other: str) -> Lead:
        """How far one common method is ahead of another over the same clients."""
        return lead(self._everywhere, label, other)

    @cached_property
    def _everywhere(self) -> Comparison:
        return _comparison(self.results["runs"], self.common)

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The average rank of each common method over the cases; 1 is best."""
        return average_ranks(_means(self.cases, self.common)) if self.common else {}

    @cached_property
    def order(self) -> list[str]:
        """Common methods from the best: by average rank, then by accuracy over all clients."""
        return sorted(self.common, key=lambda label: (self.ranks[label], -self.overall[label].accuracy))

    @cached_property
    def rankings(self) -> list[Ranking]:
        """By average rank, where there are several cases: of all common methods, and of those of the paper.

        Methods of the paper have one of their own, since its figures rank fewer methods. The ranks that it
        prints may differ a little: here, methods with the same figure share their place.
        """
        if len(self.cases) == 1 or len(self.common) < 2 or self.toy is not None:
            return []
        of_paper = [label for label in self.common if all(label in case.paper for case in self.cases)]
        papers = [{label: case.paper[label].mean for label in of_paper} for case in self.cases]
        every = Ranking("average rank", self.ranks, average_ranks(papers) if of_paper == self.common else {})
        if of_paper == self.common or len(of_paper) < 2:
            return [every]
        here = average_ranks(_means(self.cases, of_paper))
        return [every, Ranking("rank among the paper's", here, average_ranks(papers))]

    @property
    def leaders(self) -> list[str]:
        """The best of the common methods, in that order: more than one where they share their rank."""
        return [label for label in self.order if self.ranks[label] == self.ranks[self.order[0]]]

    @property
    def toy(self) -> ToyExample | None:
        """The toy example, if that was the run: then cases are rates, not situations."""
        return next((run["toy"] for run in self.results["runs"] if "toy" in run), None)

    @cached_property
    def clients(self) -> int:
        """How many different ones, over all cases and seeds."""
        return len(set(_identities(self.results["runs"])))

    @property
    def shared(self) -> bool:
        """Whether some clients are in several cases."""
        return self.clients < sum(case.clients for case in self.cases)

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


def study(content: object, samples: object = None) -> Study:
    """Check the content of a `results.json` and, if there is one, of a `samples.json`; group runs by case."""
    results, shown = checked_results(content), None if samples is None else checked_samples(samples)
    names = dict.fromkeys(run["case"] for run in results["runs"])
    return Study(results, shown, tuple(_case(results, name) for name in names))


def _case(results: Results, name: str) -> Case:
    runs = tuple(run for run in results["runs"] if run["case"] == name)
    labels = {entry["label"] for entry in runs[0]["entries"]}
    paper = {
        label: Spread(*figures[name]) for label, figures in results["paper"].items()
        if name in figures and label in labels
    }  # fmt: skip
    return Case(name, runs, paper)


def _means(cases: Sequence[Case], labels: Sequence[str]) -> list[dict[str, float]]:
    return [{label: case.accuracy[label].mean for label in labels} for case in cases]


def _identities(runs: Sequence[Run]) -> Iterator[Identity]:
    for run in runs:
        for client in run["clients"]:
            yield run["population"]["digest"], client["id"]


def _lines(comparison: Comparison) -> dict[str, Line]:
    return {line.method: line for line in lines(comparison)}


def _comparison(runs: Sequence[Run], labels: Sequence[str]) -> Comparison:
    """All clients of these runs; one that is in several of them counts once, with its mean."""
    each, identities = [Comparison(run) for run in runs], list(_identities(runs))

    def merged(label: str, figure: str) -> list[float]:
        """Rounded, so that what is equal but for floating point does no harm."""
        values = chain.from_iterable(one.of(label, figure) for one in each)
        found: dict[Identity, list[float]] = {}
        for identity, value in zip(identities, values, strict=True):
            found.setdefault(identity, []).append(value)
        return [round(fmean(of_client), 12) for of_client in found.values()]

    clients = dict(zip(identities, (client for run in runs for client in run["clients"]), strict=True))
    entries = [{"label": label, **{name: merged(label, name) for name in METRICS}} for label in labels]
    return Comparison(
        {**runs[0], "clients": list(clients.values()), "entries": cast(list[MethodResult], entries)}
    )


def _spread(runs: Sequence[Run], label: str) -> Spread:
    return Spread.of([100 * float(np.mean(Comparison(run).of(label))) for run in runs])
