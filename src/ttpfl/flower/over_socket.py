"""Flower's clients over a Unix socket, which only the user that it belongs to can connect to."""

import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.supercore.protobuf.client import ProtobufClient, ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker

Client = TypeVar("Client", bound=ProtobufClient)

LONGEST = 100  # bytes of a socket's path that every system takes


def listen(path: Path) -> socket.socket:
    """A socket for this user alone, in place of one that a killed process left."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(_short(path))
    finally:
        os.umask(before)
    bound.listen(128)
    return bound


def answers(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(_short(path))
        except OSError:
            return False
        return True


def client_over(
    kind: type[Client],
    path: Path,
    interceptors: Sequence[ProtobufClientInterceptor] = (),
    retry_invoker: RetryInvoker | None = None,
    timeout: float = 60.0,
) -> Client:
    """One of Flower's HTTP clients that speaks to this socket."""
    client = kind("http://superlink", interceptors=interceptors, retry_invoker=retry_invoker)
    # Flower has no option for it. Where this attribute had another name, nothing would be reached at all.
    client._client.close()
    client._client = httpx.Client(transport=httpx.HTTPTransport(uds=_short(path)), timeout=timeout)
    return client


def _short(path: Path) -> str:
    """The path, or another for the same file where it is too long for a socket's address."""
    if len(os.fsencode(path)) <= LONGEST:
        return str(path)
    return f"/proc/self/fd/{_opened(path.parent)}/{path.name}"


@cache
def _opened(folder: Path) -> int:
    """Kept open for as long as the process lives: connections are made again and again."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
