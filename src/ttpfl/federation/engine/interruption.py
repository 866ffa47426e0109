"""Ctrl-C as a wish that is granted at a safe point."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

log = logging.getLogger("ttpfl")


class Interrupted(KeyboardInterrupt):
    """A run ended because somebody asked for it; nothing is lost."""


class Wish:
    """Whether somebody asked to stop."""

    asked = False


@contextmanager
def interruptible() -> Iterator[Wish]:
    """While open, the first Ctrl-C sets `asked`; the second one interrupts as usual."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish  # signals are the main thread's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        wish.asked = True
        signal.signal(signal.SIGINT, before)
        with suppress(RuntimeError):  # if this came in the middle of writing another line
            log.warning("the run ends with the next answer of a client; a second Ctrl-C ends it now")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)
