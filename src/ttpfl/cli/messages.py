"""What people are told beside the result: on stderr."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ttpfl.errors import TtpflWarning
from ttpfl.printable import printable

_commands: list[Callable[[], str | None]] = []


def say(text: str, style: str | None = None) -> None:
    """A line, as long as it is; above the live display, while there is one."""
    from ttpfl.cli.progress import stderr

    stderr().print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Something that does not keep the command from going on."""
    say(f"warning: {text}", "yellow")


@contextmanager
def speaking_for(command: Callable[[], str | None]) -> Iterator[None]:
    """Warnings meanwhile are for users of this command, who know the library's arguments by other names."""
    _commands.append(command)
    try:
        yield
    finally:
        _commands.pop()


def show_warnings() -> None:
    """The library's warnings look like the command line's own, and name its options."""
    logging.getLogger("ttpfl").addHandler(_Warnings(logging.WARNING))
    warnings.simplefilter("always", TtpflWarning)
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, TtpflWarning):
            _warn_in_options(str(message))
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _warn_in_options(record.getMessage())


def _warn_in_options(text: str) -> None:
    from ttpfl.cli.words import as_options

    warn(as_options(text, _commands[-1]() if _commands else None))
