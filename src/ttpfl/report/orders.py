"""Runs in which the samples of each client came in several orders."""

from collections.abc import Iterable

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.study import Case
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Run

ORDERS = {"iid": "random", "recorded": "as recorded", "label-sorted": "class by class", "mixed": "mixed"}


def several_orders(case: Case) -> bool:
    """Whether all runs of a case have further orders."""
    return all("orders" in run for run in case.runs)


def by_order(case: Case) -> dict[str, list[Run]]:
    """The runs of a case by the order of the samples; each run has the entries of that order."""
    first = str(case.runs[0]["config"].get("test.order", "iid"))
    orders = [order for order in case.runs[0]["orders"] if all(order in run["orders"] for run in case.runs)]
    others = {order: [_in_order(run, order) for run in case.runs] for order in orders}
    return {first: list(case.runs), **others}


def _in_order(run: Run, order: str) -> Run:
    return {**run, "entries": run["orders"][order]}


def changes(runs: Iterable[Run], label: str) -> list[float]:
    """What a method changes at every client of every run, in points; empty without a baseline."""
    pairs = (zip(Comparison(run).of(label), Comparison(run).of(BASELINE), strict=False) for run in runs)
    return [100 * (after - before) for pair in pairs for after, before in pair]
