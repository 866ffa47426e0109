"""A progress bar for whoever looks at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(title: str, show: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """A function to call as `advance(done, all)`; the bar is on stderr, and only if that is a terminal.

    >>> with progress("counting") as advance:
    ...     advance(1, 2)
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    disable = not (show and console.is_terminal)
    # No thread of its own: work that is watched may fork processes.
    with Progress(*columns, console=console, disable=disable, auto_refresh=False) as bar:
        task = None

        def advance(done: int, total: int | None) -> None:
            nonlocal task
            if task is None:  # nothing is shown before there is something to wait for
                task = bar.add_task(title, total=total)
            bar.update(task, completed=done, refresh=True)

        yield advance
