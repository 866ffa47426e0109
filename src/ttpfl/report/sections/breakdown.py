"""Accuracy by corruption, by severity and by domain of the clients."""

from collections.abc import Callable
from statistics import mean

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.markup import Html
from ttpfl.report.numbers import listed, plain, signed
from ttpfl.report.parts import Cell, Column, Data, Section, Value, figure, panels, table
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Client

Key = tuple[str, str]
"""What clients are grouped by, and the group."""

GROUPINGS: dict[str, Callable[[Client], str | None]] = {
    "corruption": lambda client: (
        client["corruption"]["name"].replace("_", " ") if client["corruption"] else None
    ),
    "severity": lambda client: (
        f"severity {client['corruption']['severity']}" if client["corruption"] else None
    ),
    "domain": lambda client: client["domain"],
}
FULL = 10.0  # points of difference at which a cell has its full colour


def breakdown(study: Study) -> Section | None:
    """A table for each case whose clients differ in one of these."""
    found = {case.name: groups for case in study.cases if (groups := _groups(case))}
    if not found:
        return None
    shown = {case.name: _table(case, found[case.name]) for case in study.cases if case.name in found}
    caption = (
        "Difference to no adaptation in points, mean over the clients of each group; the row of no "
        "adaptation has its accuracy in percent. Blue is better, orange is worse, full at 10 points."
    )
    rows: list[list[Value]] = [
        [case, kind, group, len(of_method), label, mean(of_method)]
        for case, groups in found.items()
        for (kind, group), by_label in groups.items()
        for label, of_method in by_label.items()
    ]
    data = Data(["case", "by", "group", "clients", "method", "accuracy"], rows)
    content = figure("breakdown-table", caption, panels("Case", shown), data)
    return Section("breakdown", "By corruption and domain", content)


def _groups(case: Case) -> dict[Key, dict[str, list[float]]]:
    """Accuracies by group and label; only groupings that tell clients apart."""
    groups: dict[Key, dict[str, list[float]]] = {}
    for kind, group_of in GROUPINGS.items():
        names = {name for run in case.runs for client in run["clients"] if (name := group_of(client))}
        for name in sorted(names) if len(names) > 1 else ():
            groups[kind, name] = {
                label: [
                    accuracy
                    for run in case.runs
                    for accuracy, client in zip(Comparison(run).of(label), run["clients"], strict=True)
                    if group_of(client) == name
                ]
                for label in case.lines
            }
    return groups


def _table(case: Case, groups: dict[Key, dict[str, list[float]]]) -> Html:
    columns = [Column("Method", numeric=False)]
    for (_, name), by_label in groups.items():
        columns.append(Column(name, f"{len(by_label[next(iter(case.lines))])} clients"))
    rows = [
        [Cell(label, label, "baseline" if label == BASELINE else "")]
        + [_cell(label, by_label) for by_label in groups.values()]
        for label in case.lines
    ]
    return table(listed("By group", case.name), columns, rows, "heat")


def _cell(label: str, by_label: dict[str, list[float]]) -> Cell:
    accuracy = 100 * mean(by_label[label])
    if label == BASELINE or BASELINE not in by_label:
        return Cell(plain(accuracy, 1), 0.0 if label == BASELINE else accuracy, "quiet")
    change = accuracy - 100 * mean(by_label[BASELINE])
    share = min(1.0, abs(change) / FULL)
    return Cell(
        signed(change, 1), change, f"tint {'gain' if change >= 0 else 'harm'}", f"--share:{share:.0%}"
    )
