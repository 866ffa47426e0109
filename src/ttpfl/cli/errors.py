"""Errors as a person wants to see them: one line, no traceback."""

import os
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ttpfl.errors import TtpflError

TRACEBACK = "TTPFL_TRACEBACK"


class Commands(TyperGroup):
    """A group of commands whose errors become one line on stderr and exit code 1.

    With TTPFL_TRACEBACK=1 in the environment they are raised as they are.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user chose."""
        try:
            return super().invoke(ctx)
        except (TtpflError, OSError) as error:
            # A broken pipe is a reader who has seen enough, which typer handles.
            if isinstance(error, BrokenPipeError) or os.environ.get(TRACEBACK) == "1":
                raise
            Console(stderr=True).print(
                f"error: {in_one_line(error)}", style="red", markup=False, highlight=False, soft_wrap=True
            )
            raise typer.Exit(1) from None


def in_one_line(error: Exception) -> str:
    r"""What went wrong, with the notes that were added on the way.

    >>> error = ValueError("7 images\nare too few")
    >>> error.add_note("in domain photo")
    >>> in_one_line(error)
    '7 images are too few (in domain photo)'
    >>> in_one_line(FileNotFoundError(2, "No such file or directory", "manifest.json"))
    'manifest.json: No such file or directory'
    """
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return " ".join(f"{message or type(error).__name__}{notes}".split())
