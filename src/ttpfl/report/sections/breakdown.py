"""Accuracy by corruption, severity and domain of the clients."""

import re
from collections.abc import Callable
from statistics import mean

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.markup import Html
from ttpfl.report.numbers import listed, plain, signed
from ttpfl.report.parts import METHOD, Cell, Column, Data, Section, Value, figure, method_cell, panels, table
from ttpfl.report.study import Case, Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import Client
from ttpfl.util.printable import counted

Groups = dict[tuple[str, str], dict[str, list[float]]]
"""Accuracies by kind and name of a group, and by method."""

GROUPINGS: dict[str, Callable[[Client], str | None]] = {
    "corruption": lambda client: client["corruption"] and client["corruption"]["name"].replace("_", " "),
    "severity": lambda client: client["corruption"] and f"severity {client['corruption']['severity']}",
    "domain": lambda client: client["domain"],
}
FULL = 10.0  # points of difference at full colour


def breakdown(study: Study) -> Section | None:
    """A table for each case whose clients differ in one of these."""
    by_case = {case.name: groups for case in study.cases if (groups := _groups(case))}
    if not by_case:
        return None
    tables = {case.name: _table(case, by_case[case.name]) for case in study.cases if case.name in by_case}
    caption = (
        "Mean difference from no adaptation in each group of clients, in points; the row of no adaptation "
        f"shows its {study.metric} in percent. Blue is better, orange worse; colours saturate at 10 points."
    )
    rows: list[list[Value]] = [
        [case, kind, group, len(accuracies), label, mean(accuracies)]
        for case, groups in by_case.items()
        for (kind, group), by_label in groups.items()
        for label, accuracies in by_label.items()
    ]
    data = Data(["case", "by", "group", "clients", "method", study.metric], rows)
    content = figure("breakdown-table", caption, panels("Case", tables), data)
    natural = all(
        client["domain"] == client["id"] for case in study.cases for client in case.runs[0]["clients"]
    )
    return Section("breakdown", "By client" if natural else "By corruption and domain", content)


def _groups(case: Case) -> Groups:
    """The groupings with at least two groups."""
    groups: Groups = {}
    for kind, group_of in GROUPINGS.items():
        names = {name for run in case.runs for client in run["clients"] if (name := group_of(client))}
        for name in sorted(names, key=in_order) if len(names) > 1 else ():
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


def in_order(name: str) -> list[tuple[int, str]]:
    """What to sort names by, so that numbers in them are in their order.

    >>> sorted(["site-10", "site-2", "a"], key=in_order)
    ['a', 'site-2', 'site-10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _table(case: Case, groups: Groups) -> Html:
    columns = [METHOD]
    for (_, name), by_label in groups.items():
        columns.append(Column(name, counted(len(next(iter(by_label.values()))), "client")))
    rows = [
        [method_cell(label), *(_cell(label, by_label) for by_label in groups.values())]
        for label in case.lines
    ]
    return table(listed("By group", case.name), columns, rows, "heat")


def _cell(label: str, by_label: dict[str, list[float]]) -> Cell:
    accuracy = 100 * mean(by_label[label])
    if label == BASELINE or BASELINE not in by_label:
        return Cell(plain(accuracy, 1), 0.0 if label == BASELINE else accuracy, "quiet")
    change = accuracy - 100 * mean(by_label[BASELINE])
    class_ = f"tint {'gain' if change >= 0 else 'harm'}"
    return Cell(signed(change, 1), change, class_, f"--share:{min(1.0, abs(change) / FULL):.0%}")
