"""The server of a federation: Flower's superlink with one door for sites and another for its operator.

Sites reach the fleet API over TLS. Orders (start a run, register a key) and server apps come over a Unix
socket in the superlink's folder, which only the user of the superlink can connect to.
"""

import asyncio
import os
import secrets
import socket
import sys
from typing import Any

import uvicorn
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from ttpfl.errors import FederationError
from ttpfl.flower.fleet_gate import FleetGate
from ttpfl.flower.folder import Federation
from ttpfl.flower.over_socket import answers, client_over, listen
from ttpfl.flower.tasks import SECRET_BYTES, may_acquire, start_in_background


def serve(federation: Federation) -> None:
    """Run the superlink until a signal ends it."""
    os.umask(0o077)
    for name in [name for name in os.environ if name.startswith("FLWR_INTERNAL_GRPC")]:
        del os.environ[name]  # with these Flower would open older APIs, on all addresses
    _close_to_others(federation)
    if answers(federation.control):
        raise FederationError(f"a superlink of {federation.name} runs already")
    fleet = _public_socket(federation)
    sys.argv = ["flower-superlink", *_options(federation)]
    config = _parse_superlink_lifespan_config()
    config.superexec_auth_secret = secrets.token_bytes(SECRET_BYTES)
    superlink = create_app(config, SuperLinkLifespan)
    common: dict[str, Any] = {"loop": "asyncio", "ws": "none", "proxy_headers": False}
    common["log_config"] = get_uvicorn_log_config(console_handler.level)
    tls: dict[str, Any] = {"ssl_certfile": config.ssl_certfile, "ssl_keyfile": config.ssl_keyfile}
    inside = uvicorn.Server(uvicorn.Config(superlink, access_log=False, **common))
    outside = uvicorn.Server(uvicorn.Config(FleetGate(superlink), lifespan="off", **tls, **common))
    control, retry = listen(federation.control), make_simple_http_retry_invoker()
    acquire = may_acquire(config.superexec_auth_secret)
    start_in_background(
        client_over(RuntimeHttpClient, federation.control, acquire, retry),
        "ttpfl.flower.server_process",
        str(federation.home),
    )

    async def both() -> None:
        await asyncio.gather(inside.serve([control]), outside.serve([fleet]))

    try:
        asyncio.run(both())
    finally:
        federation.control.unlink(missing_ok=True)


def _options(federation: Federation) -> list[str]:
    certificates = federation.certificates
    return [
        *("--ssl-ca-certfile", str(certificates / "ca.crt")),
        *("--ssl-certfile", str(certificates / "server.crt")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        *("--database", str(federation.superlink / "state.db")),
        # Flower starts no app by itself.
        *("--enable-supernode-auth", "--isolation", "process", "--disable-runtime-dependency-installation"),
    ]


def _close_to_others(federation: Federation) -> None:
    """Also what an older version left open."""
    federation.superlink.chmod(0o700)
    for path in federation.superlink.glob("state.db*"):
        path.chmod(0o600)


def _public_socket(federation: Federation) -> socket.socket:
    family = socket.AF_INET6 if ":" in federation.bind else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6() and federation.bind == "::"
    try:
        return socket.create_server((federation.bind, federation.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise FederationError(f"port {federation.port} cannot be opened: {error.strerror}") from None
