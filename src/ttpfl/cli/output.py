"""What commands answer, on stdout: words and tables for people or, with `--json`, facts for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import typer

from ttpfl.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 1000  # columns where the reader is not a terminal but a file or a program


def answer(facts: Any, *words: "str | Table", as_json: bool) -> None:
    """Either the facts as JSON and nothing else, or the words."""
    if as_json:
        # What is escaped then can only be inside of texts, where JSON has the same escapes.
        typer.echo(printable(json.dumps(plain(facts), indent=2, ensure_ascii=False, allow_nan=False)))
        return
    for part in words:
        if isinstance(part, str):
            typer.echo(printable(part))
        else:
            print_table(part)


def print_table(table: "Table") -> None:
    """To stdout, as wide as it is; in a terminal, columns that ask for a share of the width get it."""
    from rich.console import Console
    from rich.segment import Segments

    console = Console(markup=False, highlight=False)
    table.expand = console.is_terminal and any(column.ratio for column in table.columns)
    if not console.is_terminal:
        console.width = WIDE
    # Texts from elsewhere are in its cells; rich's own colours are no texts.
    shown = [segment._replace(text=printable(segment.text)) for segment in console.render(table)]
    console.print(Segments(shown), end="")


def rows_table(rows: Sequence[Mapping[str, str]]) -> "Table":
    """Rows with the same keys as a table whose long cells are wrapped."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, title in enumerate(rows[0]):
        table.add_column(title, style=None if number else "bold", no_wrap=not number)
    for row in rows:
        table.add_row(*row.values())
    return table


def plain(value: Any) -> Any:
    """As JSON has it: dataclasses and mappings as objects, numbers that are not finite as null.

    >>> plain({"accuracy": (0.5, float("nan"))})
    {'accuracy': [0.5, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)
