"""Progress on stderr: a live bar in a terminal, plain lines in files and pipes."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

if TYPE_CHECKING:
    from ttpfl.federation.checkpoints.progress import Advance

INTERVAL = 10.0  # seconds between plain lines
Clock = Callable[[], float]

_open: list[Progress] = []
"""The live display, if there is one. It replaces stderr, which is then no terminal."""


@contextmanager
def progress(title: str, unit: str, *, show: bool = True, patient: bool = False) -> Iterator["Advance"]:
    """Show the progress of work that is counted in `unit`.

    Args:
        title: Description of the work.
        unit: What is counted, as in "round 3 of 20".
        show: Whether to show anything.
        patient: Show nothing before the first unit is done and, without a terminal, before `INTERVAL` has
            passed; for commands that usually take seconds.

    >>> with progress("counting", "step", show=False) as advance:
    ...     advance(1, 2)
    """
    console = Console(stderr=True)
    if not show:
        yield lambda done, total, figures="", /: None
    elif _open or (sys.stderr.isatty() and not console.is_dumb_terminal):
        with bar(title, unit, console, patient) as advance:
            yield advance
    else:
        with lines(title, unit, sys.stderr, patient) as advance:
            yield advance


def stderr() -> Console:
    """The console for messages. Bypassing a live display would garble its last line."""
    return _open[0].console if _open else Console(stderr=True)


def numbered(*titles: str) -> list[str]:
    """The titles of a command's stages.

    >>> numbered("building clients", "training")
    ['stage 1 of 2: building clients', 'stage 2 of 2: training']
    """
    return [f"stage {number} of {len(titles)}: {title}" for number, title in enumerate(titles, start=1)]


@contextmanager
def bar(title: str, unit: str, console: Console, patient: bool = False) -> Iterator["Advance"]:
    """The title and a bar below it, redrawn with each advance."""
    pace, task = Pace(unit), None

    def print_title() -> None:
        display.console.print(title, markup=False, highlight=False)

    def advance(done: int, total: int | None, figures: str = "", /) -> None:
        nonlocal task
        if task is None:
            if patient:
                print_title()
            task = display.add_task("", words="")
        words = pace.words(done, total, figures)
        display.update(task, completed=done, total=total, words=words, refresh=True)

    with _display(console) as display:
        if not patient:
            print_title()
        yield advance


@contextmanager
def _display(console: Console) -> Iterator[Progress]:
    """The only live display of the terminal; nested work gets a line in it."""
    if _open:
        yield _open[0]
        return
    words = TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=False))
    # No refresh thread, since the work may fork processes.
    with Progress(TextColumn(" "), BarColumn(10), words, console=console, auto_refresh=False) as display:
        _open.append(display)
        try:
            yield display
        finally:
            _open.clear()


@contextmanager
def lines(
    title: str, unit: str, stream: TextIO, patient: bool = False, clock: Clock = time.monotonic
) -> Iterator["Advance"]:
    """The title, lines for the first and the last unit, and one per `INTERVAL` in between."""
    pace, pending = Pace(unit, clock), ""
    due = clock() + INTERVAL if patient else 0.0
    titled = False

    def write(text: str = "") -> None:
        nonlocal titled
        if not titled:
            print(title, file=stream)
            titled = True
        if text:
            print(f"  {text}", file=stream)
        stream.flush()

    def advance(done: int, total: int | None, figures: str = "", /) -> None:
        nonlocal pending, due
        pending = pace.words(done, total, figures)
        if clock() >= due or (titled and done == total):
            write(pending)
            pending, due = "", clock() + INTERVAL

    if not patient:
        write()
    try:
        yield advance
    finally:
        if pending and (titled or clock() >= due):
            write(pending)


class Pace:
    """The progress of the work, and the time left at the pace so far.

    >>> clock = iter([0.0, 20.0, 30.0]).__next__
    >>> pace = Pace("round", clock)
    >>> pace.words(151, 200)  # an earlier run did 150
    'round 151 of 200, 16 min 20 s left'
    >>> pace.words(152, None, "loss 1.23")
    'round 152, loss 1.23'
    """

    def __init__(self, unit: str, clock: Clock = time.monotonic) -> None:
        self._unit, self._clock, self._start = unit, clock, clock()
        self._before: int | None = None

    def words(self, done: int, total: int | None, figures: str = "") -> str:
        """The progress as text."""
        if self._before is None:
            self._before = done - 1
        passed = self._clock() - self._start
        parts = [f"{self._unit} {done}" if total is None else f"{self._unit} {done} of {total}", figures]
        if total is not None and done != total:
            from ttpfl.report.numbers import duration

            left = passed / max(1, done - self._before) * (total - done)
            parts.append(f"{duration(round(left))} left")
        return ", ".join(filter(None, parts))
