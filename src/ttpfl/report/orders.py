"""Runs in which the samples came in several orders, or all clients' in one stream."""

from collections.abc import Iterable
from statistics import fmean

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Run

ORDERS = {
    "iid": "random",
    "recorded": "as recorded",
    "label-sorted": "class by class",
    "mixed": "mixed",
    "continual": "client by client",
    "gradual": "gradual",
    "mixed-clients": "mixed clients",
    "recurring": "recurring",
}


def several_orders(case: Case) -> bool:
    """Whether all runs of a case have further orders."""
    return all("orders" in run for run in case.runs)


def by_order(case: Case) -> dict[str, list[Run]]:
    """The runs of a case by the order of the samples; each run has the entries of that order."""
    first = str(case.runs[0]["config"].get("test.order", "iid"))
    orders = [order for order in case.runs[0]["orders"] if all(order in run["orders"] for run in case.runs)]
    others = {order: [_in_order(run, order) for run in case.runs] for order in orders}
    return {first: list(case.runs), **others}


def of_all_cases(study: Study) -> dict[str, list[Run]]:
    """The runs of all cases by order; empty unless every case was compared in all of them."""
    cases = [by_order(case) for case in study.cases if several_orders(case)]
    if len(cases) < len(study.cases) or len({tuple(case) for case in cases}) != 1:
        return {}
    return {order: [run for case in cases for run in case[order]] for order in cases[0]}


def _in_order(run: Run, order: str) -> Run:
    return {**run, "entries": run["orders"][order]}


def mean(runs: Iterable[Run], label: str) -> float:
    """The mean over all clients of all runs, in percent."""
    return 100 * fmean(value for run in runs for value in Comparison(run).of(label))


def changes(runs: Iterable[Run], label: str) -> list[float]:
    """What a method changes at every client of every run, in points; empty without a baseline."""
    pairs = (zip(Comparison(run).of(label), Comparison(run).of(BASELINE), strict=False) for run in runs)
    return [100 * (after - before) for pair in pairs for after, before in pair]
