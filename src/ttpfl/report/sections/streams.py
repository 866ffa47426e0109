"""The same methods on the same clients, whose samples come in several orders."""

import statistics

from ttpfl.report.markup import Html
from ttpfl.report.numbers import listed, plain, signed
from ttpfl.report.orders import ORDERS, by_order, changes, several_orders
from ttpfl.report.parts import METHOD, Cell, Column, Data, Section, Value, figure, method_cell, panels, table
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Run


def streams(study: Study) -> Section | None:
    """A table for each case that was compared in several orders."""
    cases = [case for case in study.cases if several_orders(case)]
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
    in_order = by_order(case)
    columns = [METHOD]
    for order in in_order:
        name = ORDERS.get(order, order)
        columns += [
            Column(name.capitalize(), "mean over clients, in percent"),
            Column("Harmed", f"if {name}"),
        ]
    columns.append(Column("Change", "from the first order to the last, in points"))
    rows = []
    for label in case.lines:
        means = {order: _mean(runs, label) for order, runs in in_order.items()}
        cells = [method_cell(label)]
        for order, runs in in_order.items():
            harmed = sum(change < 0 for change in changes(runs, label))
            cells += [Cell(plain(means[order]), means[order]), Cell(str(harmed), harmed, "quiet")]
        first, *_, last = means.values()
        rows.append([*cells, Cell(signed(last - first), last - first, "gain" if last >= first else "harm")])
    return table(listed("Order of the samples", case.name), columns, rows, "wide")


def _mean(runs: list[Run], label: str) -> float:
    """The mean over seeds of the mean over clients."""
    return 100 * statistics.fmean(statistics.fmean(Comparison(run).of(label)) for run in runs)


def _data(study: Study, cases: list[Case]) -> Data:
    rows: list[list[Value]] = [
        [case.name, order, run["seed"], client["id"], label, value]
        for case in cases
        for order, runs in by_order(case).items()
        for run in runs
        for label in case.lines
        for client, value in zip(run["clients"], Comparison(run).of(label), strict=True)
    ]
    return Data(["case", "order", "seed", "client", "method", study.metric], rows)
