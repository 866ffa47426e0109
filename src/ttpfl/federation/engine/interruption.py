"""Ctrl-C as a request to stop at the next safe point."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

log = logging.getLogger("ttpfl")


class Interrupted(KeyboardInterrupt):
    """A run was stopped by the user; no finished round is lost."""


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Let the first Ctrl-C set an event; the second one interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can handle signals
        return

    def receive(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, previous)
        with suppress(RuntimeError):  # the signal may arrive while another line is being written
            log.warning("stopping after the next client; press Ctrl-C again to stop immediately")

    previous = signal.signal(signal.SIGINT, receive)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)
