"""Tables on stdout."""

from rich.console import Console
from rich.table import Table

WIDE = 1000  # columns where the reader is not a terminal but a file or a program


def print_table(table: Table) -> None:
    """To stdout, as wide as it is."""
    console = Console(markup=False, highlight=False)
    table.expand = console.is_terminal
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)
