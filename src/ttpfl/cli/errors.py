"""Errors as users see them: one or two lines on stderr and an exit code, no traceback."""

import os
import select
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import typer

from ttpfl.cli.messages import for_users, say
from ttpfl.errors import TtpflError, TtpflWarning

DEBUG = "--debug"
ERROR, USAGE, ALARM, INTERRUPTED = 1, 2, 3, 130
EXIT_CODES = "Exit codes: 0 success, 1 error, 2 wrong usage, 130 interrupted (Ctrl-C)."

# The base class of all usage errors, which typer does not export.
UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]


@contextmanager
def reporting_usage_errors() -> Iterator[None]:
    """Report a usage error: what is wrong, and which help page to read."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
            raise typer.Exit(USAGE) from None
        say(f"error: {' '.join(error.format_message().split())}", "red")
        if error.ctx is not None:
            say(f"see {error.ctx.command_path} --help")
        raise typer.Exit(USAGE) from None


@contextmanager
def reporting_errors(debug: bool) -> Iterator[None]:
    """Report what ends a command early, and exit with its code; `debug` re-raises errors."""
    try:
        with reporting_usage_errors():
            yield
    except typer.Exit:
        raise
    except KeyboardInterrupt as stop:
        say(str(stop) or "interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _stdout_has_no_reader():
            raise typer.Exit from None  # as in `ttpfl ... | head`
        if debug:
            raise
        say(f"error: {_message(error)}", "red")
        raise typer.Exit(ERROR) from None


@contextmanager
def resumable(advice: str) -> Iterator[None]:
    """Add advice to an interrupt.

    >>> try:
    ...     with resumable("run it again"):
    ...         raise KeyboardInterrupt("stopped after 3 rounds")
    ... except KeyboardInterrupt as stop:
    ...     print(stop)
    stopped after 3 rounds: run it again
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{str(stop) or 'stopped'}: {advice}") from None


def resumable_command() -> AbstractContextManager[None]:
    """Add the command that resumes this one to an interrupt."""
    command = sys.argv[1:] + ([] if "--resume" in sys.argv else ["--resume"])
    return resumable(f"ttpfl {shlex.join(command)}")


def in_one_line(error: Exception) -> str:
    r"""The message of an error with its notes.

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


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return in_one_line(error)
    if isinstance(error, (TtpflError, TtpflWarning)):
        return for_users(in_one_line(error))
    return (
        f"this is a bug: {type(error).__name__}: {in_one_line(error)}; "
        f"run again with {DEBUG}, and report what it shows"
    )


def _stdout_has_no_reader() -> bool:
    """Whether stdout is a pipe without a reader; any other broken pipe is an error."""
    try:
        stdout = sys.stdout.fileno()
    except OSError:  # not a file
        return False
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(stdout, 0)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):
            return False
    # At exit, Python would write the rest of its buffer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return True
