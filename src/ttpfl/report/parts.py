"""What sections are made of: tables, figures with their data, and a choice between panels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ttpfl.report.markup import Html, Node, element, embedded, joined

Value = str | float | None


@dataclass(frozen=True)
class Section:
    """A part of the page that can be linked to."""

    id: str
    title: str
    body: Html


@dataclass(frozen=True)
class Data:
    """What is behind a figure; the page offers it as CSV."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class Column:
    """A column's title, and what it means."""

    title: str
    help: str = ""
    numeric: bool = True
    sortable: bool = True


@dataclass(frozen=True)
class Cell:
    """What is shown in a table, and the value to sort by."""

    content: Node
    value: Value = None
    class_: str = ""
    style: str | None = None


def figure(id: str, caption: Node, body: Node, data: Data) -> Html:
    """A figure, with its data for the page's script."""
    return element(
        "figure",
        body,
        element("figcaption", caption),
        embedded({"columns": data.columns, "rows": data.rows}, class_="data"),
        id=id,
    )


def table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], class_: str = "") -> Html:
    """A table in a box that scrolls by itself where it is too wide; its first column names the rows."""
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
    """One panel below the other; the page's script shows one at a time. A single one needs no choice."""
    if len(contents) == 1:
        return joined(*contents.values())
    shown = [
        element("div", element("h4", title), content, class_="panel", data_title=title)
        for title, content in contents.items()
    ]
    return element("div", shown, class_="panels", data_choice=choice)


def definitions(pairs: Sequence[tuple[str, Node]]) -> Html:
    """Names and what they stand for, as far as it is known."""
    known = [element("div", element("dt", name), element("dd", text)) for name, text in pairs if text]
    return element("dl", known)


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """What the classes of marks mean: pairs of class and text."""
    return element(
        "p",
        [element("span", element("i", class_=f"key {class_}"), text) for class_, text in entries],
        class_="legend",
    )


def _header(column: Column) -> Html:
    return element(
        "th",
        column.title,
        scope="col",
        class_="number" if column.numeric else None,
        title=column.help or None,
        data_sort=("number" if column.numeric else "text") if column.sortable else None,
    )


def _cell(column: Column, cell: Cell, first: bool) -> Html:
    classes = " ".join(filter(None, ["number" if column.numeric else "", cell.class_]))
    name, scope = ("th", "row") if first else ("td", None)
    return element(
        name, cell.content,
        scope=scope, class_=classes or None, data_value=_sortable(cell.value), style=cell.style,
    )  # fmt: skip


def _sortable(value: Value) -> str | None:
    """A value for the page's script; what is not finite is not there."""
    if value is None or isinstance(value, str):
        return value
    return f"{value:.7g}" if math.isfinite(value) else None
