"""A comparison of methods as a table."""

from rich import box
from rich.table import Table

from ttpfl.evaluation import Comparison
from ttpfl.evaluation.summary import Line, lines
from ttpfl.report.numbers import DASH

TITLES = "method accuracy difference interval harmed worst-tenth loss ECE time memory"


def comparison_table(comparison: Comparison) -> Table:
    """One line per method; accuracies in percent, mean over clients."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in TITLES.split():
        table.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
    for line in lines(comparison):
        table.add_row(*_cells(line))
    return table


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.method,
        f"{line.accuracy:.2f}",
        *_against_none(line),
        f"{line.worst_decile:.2f}",
        f"{line.loss:.3f}",
        f"{line.ece:.3f}",
        f"{line.time:.1f}x",
        f"{line.extra_bytes / 1e6:.1f} MB",
    )


def _against_none(line: Line) -> tuple[str, str, str]:
    """Difference, interval and harmed clients: unknown, if nothing was run without adaptation."""
    if line.harmed is None:
        return DASH, DASH, DASH
    low, high = line.interval
    return f"{line.difference:+.2f}", f"{low:+.2f} to {high:+.2f}", str(line.harmed)
