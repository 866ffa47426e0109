"""What people are told beside the result: on stderr."""

import logging
import warnings
from typing import Any

from ttpfl.errors import TtpflWarning
from ttpfl.printable import printable


def say(text: str, style: str | None = None) -> None:
    """A line, as long as it is."""
    from rich.console import Console

    Console(stderr=True).print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Something that does not keep the command from going on."""
    say(f"warning: {text}", "yellow")


def show_warnings() -> None:
    """The library's warnings look like the command line's own."""
    logging.getLogger("ttpfl").addHandler(_Warnings(logging.WARNING))
    warnings.simplefilter("always", TtpflWarning)
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, TtpflWarning):
            warn(str(message))
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())
