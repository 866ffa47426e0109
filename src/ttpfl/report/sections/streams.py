"""The same methods on the same clients, whose samples come in several orders."""

import statistics

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.markup import Html
from ttpfl.report.numbers import listed, plain, signed
from ttpfl.report.parts import METHOD, Cell, Column, Data, Section, Value, figure, method_cell, panels, table
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Run

ORDERS = {"iid": "random", "recorded": "as recorded", "label-sorted": "class by class", "mixed": "mixed"}


def streams(study: Study) -> Section | None:
    """A table for each case that was compared in several orders."""
    cases = [case for case in study.cases if all("orders" in run for run in case.runs)]
    if not cases:
        return None
    caption = (
        f"Mean {study.metric} over clients in percent, with the samples of each client in several orders. "
        "Harmed: clients that are worse than without adaptation in the same order. Without adaptation, the "
        "order does not matter."
    )
    tables = {case.name: _table(case) for case in cases}
    content = figure("streams-table", caption, panels("Case", tables), _data(study, cases))
    return Section("streams", "Order of the samples", content)


def _table(case: Case) -> Html:
    by_order = _by_order(case)
    columns = [METHOD]
    for order in by_order:
        name = ORDERS.get(order, order)
        columns += [
            Column(name.capitalize(), "mean over clients, in percent"),
            Column("Harmed", f"if {name}"),
        ]
    columns.append(Column("Change", "from the first order to the last, in points"))
    rows = []
    for label in case.lines:
        means = {order: _mean(runs, label) for order, runs in by_order.items()}
        cells = [method_cell(label)]
        for order, runs in by_order.items():
            harmed = _harmed(runs, label)
            cells += [Cell(plain(means[order]), means[order]), Cell(str(harmed), harmed, "quiet")]
        first, *_, last = means.values()
        rows.append([*cells, Cell(signed(last - first), last - first, "gain" if last >= first else "harm")])
    return table(listed("Order of the samples", case.name), columns, rows, "wide")


def _by_order(case: Case) -> dict[str, list[Run]]:
    """The runs of a case by the order of the samples; each run has the entries of that order."""
    first = str(case.runs[0]["config"].get("test.order", "iid"))
    orders = [order for order in case.runs[0]["orders"] if all(order in run["orders"] for run in case.runs)]
    others = {order: [_in_order(run, order) for run in case.runs] for order in orders}
    return {first: list(case.runs), **others}


def _in_order(run: Run, order: str) -> Run:
    return {**run, "entries": run["orders"][order]}


def _mean(runs: list[Run], label: str) -> float:
    """The mean over seeds of the mean over clients."""
    return 100 * statistics.fmean(statistics.fmean(Comparison(run).of(label)) for run in runs)


def _harmed(runs: list[Run], label: str) -> int:
    """Over all seeds; 0 without a baseline."""
    pairs = (zip(Comparison(run).of(label), Comparison(run).of(BASELINE), strict=False) for run in runs)
    return sum(after < before for pair in pairs for after, before in pair)


def _data(study: Study, cases: list[Case]) -> Data:
    rows: list[list[Value]] = [
        [case.name, order, run["seed"], client["id"], label, value]
        for case in cases
        for order, runs in _by_order(case).items()
        for run in runs
        for label in case.lines
        for client, value in zip(run["clients"], Comparison(run).of(label), strict=True)
    ]
    return Data(["case", "order", "seed", "client", "method", study.metric], rows)
