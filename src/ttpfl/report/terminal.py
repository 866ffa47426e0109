"""Results in a terminal of 80 columns: best method first, each with its difference from no adaptation."""

import math
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from rich import box
from rich.console import Console
from rich.table import Table

from ttpfl.evaluation.summary import BASELINE, Line
from ttpfl.report.guard_words import guard_words
from ttpfl.report.numbers import DASH, capital, ends, plain, signed
from ttpfl.report.orders import ORDERS, changes, mean, of_all_cases
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import COST, Run
from ttpfl.util.printable import counted

WIDTH = 80
VS_NONE = ["vs. none", "95 % interval", "harmed"]

Rows = list[list[str]]


def study_words(study: Study) -> list[Table | str]:
    """One row per method or, if the cases do not fit side by side, per case and method."""
    columns = _columns(study.metric, [line for case in study.cases for line in case.lines.values()])
    table = _side_by_side(study) if len(study.cases) > 1 else None
    if table is not None or not _fits(_stacked(study, columns)):
        columns = [column for column in columns if column != "cost"]
    further = [*_in_orders(study), *(fill(words, WIDTH - 1) for words in guard_words(study))]
    if table is not None:
        return [table, _notes(study, columns, "the clients of all cases", study.clients), *further]
    fewest = min(case.clients for case in study.cases)
    clients = counted(fewest, "client") if len(study.cases) == 1 else "the clients of each case"
    return [_stacked(study, columns), _notes(study, columns, clients, fewest), *further]


def _notes(study: Study, columns: Sequence[str], clients: str, fewest: int) -> str:
    """What the columns mean, and why some have no figures."""
    text = f"{capital(study.metric)} in percent, mean over clients."
    if VS_NONE[0] in columns:
        interval = ", with its paired interval" if fewest > 1 else ". A single client gives no interval"
        text += f" Vs. {BASELINE}: the difference in points, mean over {clients}{interval}."
    text += " A single seed gives no spread." * (len(study.seeds) == 1)
    return fill(text + f" {COST}" * ("cost" in columns), WIDTH - 1)


def _in_orders(study: Study) -> Iterator[Table | str]:
    """Further tables if the samples came in several orders: as many orders side by side as fit."""
    if not (in_order := of_all_cases(study)):
        return
    orders = list(in_order.items())
    for count in range(len(orders), 0, -1):
        parts = [dict(orders[first : first + count]) for first in range(0, len(orders), count)]
        tables = [_of_orders(study, part) for part in parts]
        if all(map(_fits, tables)):
            break
    yield from tables
    words = f"{capital(study.metric)}, mean over all clients, with their samples in several orders. Harmed: "
    yield fill(
        words + "clients that lose accuracy. Worst: the largest loss of a client, or the smallest gain.",
        WIDTH - 1,
    )


def _of_orders(study: Study, in_order: dict[str, list[Run]]) -> Table:
    header = ["method"]
    for order in in_order:
        header += [ORDERS.get(order, order), "harmed", "worst"]
    return _table(header, [[[label, *_losses(in_order, label)] for label in study.order]])


def _losses(in_order: dict[str, list[Run]], label: str) -> Iterator[str]:
    for runs in in_order.values():
        changed = [] if label == BASELINE else changes(runs, label)
        yield plain(mean(runs, label))
        yield str(sum(change < 0 for change in changed)) if changed else DASH
        yield signed(min(changed)) if changed else DASH


def _side_by_side(study: Study) -> Table | None:
    """All cases in one table, if it fits."""
    tables = (_overview(study, with_spread) for with_spread in (True, False))
    return next(filter(_fits, tables), None)


def _fits(table: Table) -> bool:
    return Console(width=10 * WIDTH, markup=False).measure(table).maximum <= WIDTH


def _stacked(study: Study, columns: Sequence[str]) -> Table:
    paper = ["paper"] * any(case.paper for case in study.cases)
    groups = [_case_rows(case, columns, bool(paper)) for case in study.cases]
    header, title = ["method", columns[0], *paper, *columns[1:]], study.results["recipe"]["title"]
    if len(study.cases) == 1:
        return _table(header, groups, title)
    named = [
        [[case.name if not n else "", *row] for n, row in enumerate(rows)]
        for case, rows in zip(study.cases, groups, strict=True)
    ]
    return _table(["case", *header], named, title)


def _overview(study: Study, with_spread: bool) -> Table:
    """Cases side by side, methods by average rank; differences are over all clients."""
    vs_none = VS_NONE[:2] if BASELINE in study.common else []
    header = ["method", *(case.name for case in study.cases), *["rank"] * bool(study.rankings), *vs_none]
    rows = []
    for label in [*study.order, *(label for label in study.labels if label not in study.common)]:
        row = [label, *(_accuracy(case, label, with_spread) for case in study.cases)]
        row += [plain(study.ranks.get(label), 1)] * bool(study.rankings)
        line = study.overall.get(label)
        rows.append([*row, *([DASH] * len(vs_none) if line is None else _cells(line, vs_none))])
    return _table(header, [rows], study.results["recipe"]["title"])


def _case_rows(case: Case, columns: Sequence[str], with_paper: bool) -> Rows:
    """Methods by accuracy, with the spread over seeds and the paper's figure."""
    rows = []
    for label, line in sorted(case.lines.items(), key=lambda item: -item[1].accuracy):
        paper = [plain(case.paper[label].mean) if label in case.paper else DASH] * with_paper
        rows.append([label, _accuracy(case, label, True), *paper, *_cells(line, columns[1:])])
    return rows


def _accuracy(case: Case, label: str, with_spread: bool) -> str:
    if label not in case.accuracy:
        return DASH
    accuracy = case.accuracy[label]
    return str(accuracy) if with_spread else plain(accuracy.mean)


_SHORT = {"balanced accuracy": "balanced"}
"""Names of metrics for narrow columns; the text below the table has the full one."""


def _columns(metric: str, lines: Sequence[Line]) -> list[str]:
    """The columns for which there are figures."""
    has_baseline = any(line.harmed is not None for line in lines)
    has_cost = any(math.isfinite(line.time) for line in lines)
    return [_SHORT.get(metric, metric), *VS_NONE * has_baseline, *["cost"] * has_cost]


def _cells(line: Line, columns: Iterable[str]) -> Iterator[str]:
    figures = [signed(line.difference), ends(line.interval), str(line.harmed)]
    if line.method == BASELINE or line.harmed is None:
        figures = [DASH] * 3
    cells = {**dict(zip(VS_NONE, figures, strict=True)), "cost": f"{plain(line.time, 1)}x"}
    return (cells[column] for column in columns)


def _table(header: Sequence[str], groups: Iterable[Rows], title: str | None = None) -> Table:
    """A table with the first row of each group in bold."""
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in header:
        is_text = column in ("case", "method")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text)
    for rows in groups:
        for place, row in enumerate(rows):
            table.add_row(*row, style=None if place else "bold")
        table.add_section()
    return table
