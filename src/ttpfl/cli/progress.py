"""What a command is doing, on stderr: a live bar in a terminal, plain lines in files and pipes."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

if TYPE_CHECKING:
    from ttpfl.federation.progress import Advance

INTERVAL = 10.0
"""Seconds between plain lines."""

_open: list[Progress] = []
"""The live display, while there is one; it puts itself before stderr, which is no terminal then."""


@contextmanager
def progress(title: str, unit: str, *, show: bool = True, patient: bool = False) -> Iterator["Advance"]:
    """Show how work goes on that is counted in `unit`; stdout is for results and stays free.

    Args:
        title: what is done.
        unit: what is counted: "round" makes "round 3 of 20".
        show: whether to show anything.
        patient: wait for the first of it to be done and, without a terminal, for so long that somebody may
            wonder; for commands that mostly take seconds.

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
    """Where to print on stderr: what is printed past a live display would end up in its last line."""
    return _open[0].console if _open else Console(stderr=True)


def numbered(*titles: str) -> list[str]:
    """The titles of a command's stages.

    >>> numbered("building clients", "training")
    ['stage 1 of 2: building clients', 'stage 2 of 2: training']
    """
    return [f"stage {number} of {len(titles)}: {title}" for number, title in enumerate(titles, start=1)]


@contextmanager
def bar(title: str, unit: str, console: Console, patient: bool = False) -> Iterator["Advance"]:
    """The title, and below it a bar, which is redrawn when something is done."""
    pace, task = Pace(), None

    def say_title() -> None:
        display.console.print(title, markup=False, highlight=False)

    def advance(done: int, total: int | None, figures: str = "", /) -> None:
        nonlocal task
        if task is None:
            if patient:
                say_title()
            task = display.add_task("", words="")
        words = in_words(unit, done, total, figures, pace.left(done, total))
        display.update(task, completed=done, total=total, words=words, refresh=True)

    with _display(console) as display:
        if not patient:
            say_title()
        yield advance


@contextmanager
def _display(console: Console) -> Iterator[Progress]:
    """The live display, of which a terminal has one: work within work is a line of it."""
    if _open:
        yield _open[0]
        return
    words = TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=False))
    # No thread of its own: work that is watched may fork processes.
    with Progress(TextColumn(" "), BarColumn(10), words, console=console, auto_refresh=False) as display:
        _open.append(display)
        try:
            yield display
        finally:
            _open.clear()


@contextmanager
def lines(
    title: str,
    unit: str,
    stream: TextIO,
    patient: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator["Advance"]:
    """A line for the first of the work, the last, and one now and then between them."""
    pace, last = Pace(clock), ""
    due = clock() + INTERVAL if patient else 0.0
    titled = False

    def say(text: str) -> None:
        nonlocal titled
        if not titled:
            print(title, file=stream)
            titled = True
        if text:
            print(f"  {text}", file=stream)
        stream.flush()

    def advance(done: int, total: int | None, figures: str = "", /) -> None:
        nonlocal last, due
        last = in_words(unit, done, total, figures, pace.left(done, total))
        if clock() >= due or (titled and done == total):
            say(last)
            last, due = "", clock() + INTERVAL

    if not patient:
        say("")
    try:
        yield advance
    finally:
        if last and (titled or clock() >= due):
            say(last)


class Pace:
    """How long the rest will take, if it goes on as it did so far.

    >>> clock = iter([0.0, 20.0, 30.0]).__next__
    >>> pace = Pace(clock)
    >>> pace.left(151, 200), pace.left(152, 200)  # 150 were there before
    (980.0, 720.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begin = clock, clock()
        self._before: int | None = None

    def left(self, done: int, total: int | None) -> float | None:
        """Seconds; None where nobody knows how much there is to do."""
        if self._before is None:  # what an earlier run left was not done now
            self._before = done - 1
        passed = self._clock() - self._begin
        return None if total is None else passed / max(1, done - self._before) * (total - done)


def in_words(unit: str, done: int, total: int | None, figures: str, left: float | None) -> str:
    """How far it is.

    >>> in_words("round", 30, 200, "loss 1.23", 130.4)
    'round 30 of 200, loss 1.23, 2 min 10 s left'
    >>> in_words("picture", 7, None, "", None)
    'picture 7'
    """
    parts = [f"{unit} {done}" if total is None else f"{unit} {done} of {total}", figures]
    if left is not None and done != total:
        parts.append(f"{duration(left)} left")
    return ", ".join(filter(None, parts))


def duration(seconds: float) -> str:
    """As people say it.

    >>> duration(8.2), duration(130), duration(3 * 3600 + 59)
    ('8 s', '2 min 10 s', '3 h 0 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
