"""Results in a terminal of 80 columns: the first method on top, each with its difference to no adaptation."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill

from rich import box
from rich.console import Console
from rich.table import Table

from ttpfl.evaluation.summary import BASELINE, Line
from ttpfl.report.numbers import DASH, ends, plain, signed
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import COST

WIDTH = 80
AGAINST_NONE = ["to none", "95 % interval", "harmed"]

Rows = list[list[str]]


def study_words(study: Study) -> list[Table | str]:
    """A run: one row per method and, where its cases have no room beside each other, per case."""
    seeds = " One seed gives no spread over seeds." * (len(study.seeds) == 1)
    columns = _columns([line for case in study.cases for line in case.lines.values()])
    table = _beside_each_other(study) if len(study.cases) > 1 else None
    if table is not None:
        columns = [column for column in columns if column != "cost"]
        return [table, _notes(columns, "over the clients of all cases", study.clients, seeds)]
    fewest = min(case.clients for case in study.cases)
    over = _over(fewest) if len(study.cases) == 1 else "over the clients of each case"
    return [_one_after_another(study, columns), _notes(columns, over, fewest, seeds)]


def _over(clients: int) -> str:
    return f"over {clients} client{'s' * (clients > 1)}"


def _notes(columns: Sequence[str], over: str, clients: int, more: str = "") -> str:
    """What the columns mean, and why some have no figures."""
    text = "Accuracy in percent, mean over clients."
    if "to none" in columns:
        interval = (
            ", with its interval, paired by client" if clients > 1 else ". One client gives no interval"
        )
        text += f" To {BASELINE}: the difference in points, mean {over}{interval}."
    return fill(f"{text}{more}{f' {COST}' * ('cost' in columns)}", WIDTH - 1)


def _beside_each_other(study: Study) -> Table | None:
    """If there is room for that."""
    wide = Console(width=10 * WIDTH, markup=False)
    tables = (_overview(study, with_spread) for with_spread in (True, False))
    return next((table for table in tables if wide.measure(table).maximum <= WIDTH), None)


def _one_after_another(study: Study, columns: Sequence[str]) -> Table:
    paper = ["paper"] * any(case.paper for case in study.cases)
    groups = [_of_case(case, columns, bool(paper)) for case in study.cases]
    header, title = ["method", columns[0], *paper, *columns[1:]], study.results["recipe"]["title"]
    if len(study.cases) == 1:
        return _table(header, groups, title)
    named = [
        [[case.name if not n else "", *row] for n, row in enumerate(rows)]
        for case, rows in zip(study.cases, groups, strict=True)
    ]
    return _table(["case", *header], named, title)


def _overview(study: Study, with_spread: bool) -> Table:
    """All cases beside each other, methods by their average rank; differences are over all clients."""
    against_none = AGAINST_NONE[:2] if BASELINE in study.common else []
    header = ["method", *(case.name for case in study.cases), *["rank"] * bool(study.rankings), *against_none]
    rows = []
    for label in [*study.order, *(label for label in study.labels if label not in study.common)]:
        row = [label, *(_accuracy(case, label, with_spread) for case in study.cases)]
        row += [plain(study.ranks.get(label), 1)] * bool(study.rankings)
        line = study.overall.get(label)
        rows.append([*row, *([DASH] * len(against_none) if line is None else _cells(line, against_none))])
    return _table(header, [rows], study.results["recipe"]["title"])


def _of_case(case: Case, columns: Sequence[str], with_paper: bool) -> Rows:
    """By accuracy: as `_rows`, with the spread over seeds and the paper's figure."""
    rows = _rows(list(case.lines.values()), columns)
    for row in rows:
        label = row[0]
        row[1] = _accuracy(case, label, with_spread=True)
        if with_paper:
            row.insert(2, plain(case.paper[label].mean) if label in case.paper else DASH)
    return rows


def _accuracy(case: Case, label: str, with_spread: bool) -> str:
    if label not in case.accuracy:
        return DASH
    found = case.accuracy[label]
    return str(found) if with_spread else plain(found.mean)


def _columns(lines: Sequence[Line]) -> list[str]:
    """Those for which there are figures."""
    against_none = any(line.harmed is not None for line in lines)
    costs = any(math.isfinite(line.time) for line in lines)
    return ["accuracy", *AGAINST_NONE * against_none, *["cost"] * costs]


def _rows(lines: Sequence[Line], columns: Sequence[str]) -> Rows:
    ordered = sorted(lines, key=lambda line: -line.accuracy)
    return [[line.method, *_cells(line, columns)] for line in ordered]


def _cells(line: Line, columns: Iterable[str]) -> Iterator[str]:
    against_none = line.method != BASELINE and line.harmed is not None
    cells: Mapping[str, str] = {
        "accuracy": plain(line.accuracy),
        "to none": signed(line.difference) if against_none else DASH,
        "95 % interval": ends(line.interval) if against_none else DASH,
        "harmed": str(line.harmed) if against_none else DASH,
        "cost": f"{plain(line.time, 1)}x",
    }
    return (cells[column] for column in columns)


def _table(header: Sequence[str], groups: Iterable[Rows], title: str | None = None) -> Table:
    """The first row of each group stands out."""
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in header:
        words = column in ("case", "method")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words)
    for rows in groups:
        for place, row in enumerate(rows):
            table.add_row(*row, style=None if place else "bold")
        table.add_section()
    return table
