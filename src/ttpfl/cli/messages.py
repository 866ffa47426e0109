"""Messages to the user on stderr; stdout is for results."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ttpfl.cli.words import as_options
from ttpfl.errors import TtpflWarning
from ttpfl.util.printable import printable

_commands: list[Callable[[], str | None]] = []


def say(text: str, style: str | None = None) -> None:
    """Print a line without wrapping it, above the live display if there is one."""
    from ttpfl.cli.progress import stderr

    stderr().print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning."""
    say(f"warning: {text}", "yellow")


@contextmanager
def speaking_for(command: Callable[[], str | None]) -> Iterator[None]:
    """Let messages of the library name the options of this command instead of arguments."""
    _commands.append(command)
    try:
        yield
    finally:
        _commands.pop()


def for_users(text: str) -> str:
    """A message of the library in the words of the running command."""
    return as_options(text, _commands[-1]() if _commands else None)


def show_warnings() -> None:
    """Show the library's warnings and log as messages of the command line."""
    logging.getLogger("ttpfl").addHandler(_Warnings(logging.WARNING))
    warnings.simplefilter("always", TtpflWarning)
    show_others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, TtpflWarning):
            warn(for_users(str(message)))
        else:
            show_others(message, category, *where, **more)

    warnings.showwarning = show


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(for_users(record.getMessage()))
