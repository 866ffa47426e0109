"""Building blocks of sections: tables, figures with their data, and panels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.chart import percent
from ttpfl.report.markup import Html, Node, element, embedded, joined

Value = str | float | None


@dataclass(frozen=True)
class Section:
    """A section of the page; `id` is its anchor."""

    id: str
    title: str
    body: Html


@dataclass(frozen=True)
class Data:
    """The data of a figure, which the page offers as CSV."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class Column:
    """A column's title and its explanation."""

    title: str
    help: str = ""
    numeric: bool = True
    sortable: bool = True


@dataclass(frozen=True)
class Cell:
    """The content of a table cell, and the value to sort by."""

    content: Node
    value: Value = None
    class_: str = ""
    style: str | None = None


METHOD = Column("Method", numeric=False)


def figure(id: str, caption: Node, body: Node, data: Data) -> Html:
    """A figure, with its data for the page's script."""
    values = embedded({"columns": data.columns, "rows": data.rows}, class_="data")
    return element("figure", body, element("figcaption", caption), values, id=id)


def table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], class_: str = "") -> Html:
    """A table in a box that scrolls if it is too wide. The first column names the rows."""
    head = element("tr", [_header(column) for column in columns])
    body = [
        element("tr", [_cell(*pair, first=not n) for n, pair in enumerate(zip(columns, row, strict=True))])
        for row in rows
    ]
    return element(
        "div",
        element("table", element("thead", head), element("tbody", body), class_=class_ or None),
        class_="scroll", role="region", aria_label=name, tabindex="0",
    )  # fmt: skip


def panels(choice: str, contents: Mapping[str, Node]) -> Html:
    """Panels by title. The page's script shows one at a time, unless there is only one."""
    if len(contents) == 1:
        return joined(*contents.values())
    shown = [
        element("div", element("h4", title), content, class_="panel", data_title=title)
        for title, content in contents.items()
    ]
    return element("div", shown, class_="panels", data_choice=choice)


def method_cell(label: str) -> Cell:
    """The name of a method."""
    return Cell(label, label, "baseline" if label == BASELINE else "")


def definitions(pairs: Sequence[tuple[str, Node]]) -> Html:
    """Names and their values; pairs without a value are omitted."""
    items = [element("div", element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", items)


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """The meaning of marks, as pairs of CSS class and text."""
    keys = [element("span", element("i", class_=f"key {class_}"), text) for class_, text in entries]
    return element("p", keys, class_="legend")


def dot(place: float, *lines: Html, class_: str = "") -> Html:
    """A small plot for a table cell: a dot at a place between 0 and 1, on top of lines."""
    circle = element("circle", cx=percent(place), cy="10", r="3.5")
    class_ = f"whisker {class_}".strip()
    return element("svg", *lines, circle, class_=class_, width="120", height="20", aria_hidden="true")


def _header(column: Column) -> Html:
    kind = "number" if column.numeric else "text"
    return element(
        "th", column.title,
        scope="col", class_="number" if column.numeric else None, title=column.help or None,
        data_sort=kind if column.sortable else None,
    )  # fmt: skip


def _cell(column: Column, cell: Cell, first: bool) -> Html:
    classes = " ".join(filter(None, ["number" if column.numeric else "", cell.class_]))
    name, scope = ("th", "row") if first else ("td", None)
    return element(
        name, cell.content,
        scope=scope, class_=classes or None, data_value=_sortable(cell.value), style=cell.style,
    )  # fmt: skip


def _sortable(value: Value) -> str | None:
    """The value for the page's script, if it is finite."""
    if value is None or isinstance(value, str):
        return value
    return f"{value:.7g}" if math.isfinite(value) else None
