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


class StopRequest:
    """Whether the user asked to stop."""

    received = False


@contextmanager
def interruptible() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C into a stop request; the second one interrupts as usual."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread can handle signals
        return

    def receive(number: int, frame: FrameType | None) -> None:
        request.received = True
        signal.signal(signal.SIGINT, previous)
        with suppress(RuntimeError):  # the signal may arrive while another line is being written
            log.warning("stopping after the next client; press Ctrl-C again to stop immediately")

    previous = signal.signal(signal.SIGINT, receive)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, previous)
