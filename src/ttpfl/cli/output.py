"""Results on stdout: text and tables or, with `--json`, JSON."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from ttpfl.util.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 1000  # columns, for files and pipes


def print_result(content: Any, *text: "str | Table", as_json: bool) -> None:
    """Print the content as JSON, or the text."""
    if as_json:
        # Only strings contain characters to escape, and JSON uses the same escapes.
        typer.echo(printable(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)))
        return
    for part in text:
        if isinstance(part, str):
            typer.echo(printable(part))
        else:
            print_table(part)


def print_table(table: "Table") -> None:
    """Print a table in full; in a terminal, columns with a ratio share its width."""
    from rich.console import Console
    from rich.segment import Segments

    console = Console(markup=False, highlight=False)
    table.expand = console.is_terminal and any(column.ratio for column in table.columns)
    if not console.is_terminal:
        console.width = WIDE
    # Cells may contain untrusted text; the colours of rich are not text.
    shown = [segment._replace(text=printable(segment.text)) for segment in console.render(table)]
    console.print(Segments(shown), end="")


def rows_table(rows: Sequence[Mapping[str, str]], right: Collection[str] = ()) -> "Table":
    """Rows with the same keys as a table that wraps long cells; `right` names columns of numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, title in enumerate(rows[0]):
        justify: Literal["left", "right"] = "right" if title in right else "left"
        table.add_column(title, style=None if number else "bold", no_wrap=not number, justify=justify)
    for row in rows:
        table.add_row(*row.values())
    return table


def plain(value: Any) -> Any:
    """A value for JSON: dataclasses and mappings become objects, non-finite numbers null.

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
