"""HTTP over a Unix socket that only its owner can connect to, for Flower's servers and clients."""

import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from flwr.supercore.protobuf.client import ProtobufClient, ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker

from ttpfl.flower.folder import umask

if TYPE_CHECKING:
    import uvicorn

Client = TypeVar("Client", bound=ProtobufClient)

LONGEST = 100  # bytes of a socket path that every system accepts


def listen(path: Path) -> socket.socket:
    """Open a socket for this user alone; it replaces one that a killed process left behind."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with umask(0o177):
        bound.bind(_short(path))
    bound.listen(128)
    return bound


def is_served(path: Path) -> bool:
    """Whether a process listens on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(_short(path))
        except OSError:
            return False
        return True


def http_server(app: Any, **options: Any) -> "uvicorn.Server":
    """A server for one of Flower's apps, without websockets and without trust in proxy headers."""
    import uvicorn  # not needed by the processes that only have a client
    from flwr.supercore.http_logging import get_uvicorn_log_config
    from flwr.supercore.logger import console_handler

    options |= {"loop": "asyncio", "ws": "none", "proxy_headers": False}
    return uvicorn.Server(
        uvicorn.Config(app, log_config=get_uvicorn_log_config(console_handler.level), **options)
    )


def client_over(
    kind: type[Client],
    path: Path,
    interceptors: Sequence[ProtobufClientInterceptor] = (),
    retry_invoker: RetryInvoker | None = None,
    timeout: float = 60.0,
) -> Client:
    """One of Flower's HTTP clients, connected to this socket."""
    client = kind("http://superlink", interceptors=interceptors, retry_invoker=retry_invoker)
    # Flower has no option for it. If it renames this attribute, requests fail: they reach no other server.
    client._client.close()
    client._client = httpx.Client(transport=httpx.HTTPTransport(uds=_short(path)), timeout=timeout)
    return client


def _short(path: Path) -> str:
    """The path, or a shorter one to the same file if it is too long for a socket address."""
    if len(os.fsencode(path)) <= LONGEST:
        return str(path)
    return f"/proc/self/fd/{_opened(path.parent)}/{path.name}"


@cache
def _opened(folder: Path) -> int:
    """A descriptor that stays open as long as the process lives, since it connects again and again."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
