"""Flower's superlink in this process, with a state in memory, behind a federation's socket."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from flwr.superlink.main import create_app

from ttpfl.flower.folder import Federation
from ttpfl.flower.over_socket import listen


@contextmanager
def superlink_of(federation: Federation) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(create_app(), loop="asyncio", ws="none", log_level="warning"))
    control = listen(federation.control)
    thread = threading.Thread(target=server.run, args=([control],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "it did not start"
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join()
        federation.control.unlink()
