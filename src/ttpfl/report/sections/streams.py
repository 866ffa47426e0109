"""The same methods on the same clients, whose samples come in several orders."""

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.markup import Html
from ttpfl.report.numbers import DASH, listed, plain, signed
from ttpfl.report.orders import ORDERS, by_order, changes, mean, of_all_cases, several_orders
from ttpfl.report.parts import METHOD, Cell, Column, Data, Section, Value, figure, method_cell, panels, table
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Run

ALL = "all"
VISIBLE = 0.005  # points; smaller changes are shown as 0.00


def streams(study: Study) -> Section | None:
    """A table for all cases together, and one for each case that was compared in several orders."""
    cases = [case for case in study.cases if several_orders(case)]
    if not cases:
        return None
    caption = (
        f"Mean {study.metric} over clients in percent, with the samples of each client in several orders. "
        "Harmed: clients that are worse than without adaptation in the same order. Worst: the largest loss "
        "of a client, or the smallest gain, in points. Without adaptation, the order does not matter."
    )
    tables = {case.name: _table(case.name, by_order(case), list(case.lines)) for case in cases}
    if len(cases) > 1 and (together := of_all_cases(study)):
        tables = {ALL: _table(ALL, together, study.common), **tables}
    content = figure("streams-table", caption, panels("Case", tables), _data(study, cases))
    return Section("streams", "Order of the samples", content)


def _table(name: str, in_order: dict[str, list[Run]], labels: list[str]) -> Html:
    columns = [METHOD]
    for order in in_order:
        words = ORDERS.get(order, order)
        columns += [
            Column(words.capitalize(), "mean over clients, in percent"),
            Column("Harmed", f"if {words}"),
            Column("Worst", f"if {words}, in points"),
        ]
    columns.append(Column("Change", "from the first order to the last, in points"))
    rows = []
    for label in labels:
        means = [mean(runs, label) for runs in in_order.values()]
        cells = [method_cell(label)]
        for average, runs in zip(means, in_order.values(), strict=True):
            cells += [Cell(plain(average), average), *_losses(changes(runs, label), label)]
        change = means[-1] - means[0]
        tone = "" if abs(change) < VISIBLE else "gain" if change > 0 else "harm"
        rows.append([*cells, Cell(signed(change), change, tone)])
    return table(listed("Order of the samples", name), columns, rows, "wide")


def _losses(changed: list[float], label: str) -> list[Cell]:
    """How many clients are worse, and the largest loss."""
    if label == BASELINE or not changed:
        return [Cell(DASH, 0.0, "quiet")] * 2
    harmed, worst = sum(change < 0 for change in changed), min(changed)
    return [Cell(str(harmed), harmed, "quiet"), Cell(signed(worst), worst, "quiet")]


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
