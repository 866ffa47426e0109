"""The server of a federation: Flower's superlink, with one entrance for sites and another for its operator.

Sites reach the fleet API over TLS. The operator's commands (start a run, register a key) and server apps come
over a Unix socket in the superlink's folder, which only the superlink's user can connect to.
"""

import asyncio
import os
import secrets
import socket
import sys

from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from ttpfl.errors import FederationError
from ttpfl.flower.fleet_gate import FleetGate
from ttpfl.flower.folder import Federation
from ttpfl.flower.over_socket import http_server, is_served, listen
from ttpfl.flower.tasks import SECRET_BYTES, start_in_background


def serve(federation: Federation) -> None:
    """Run the superlink until a signal ends it."""
    os.umask(0o077)
    for name in [name for name in os.environ if name.startswith("FLWR_INTERNAL_GRPC")]:
        del os.environ[name]  # with these, Flower would open older APIs on all addresses
    federation.superlink.chmod(0o700)  # for its user only, even if an older version left it open
    for path in federation.superlink.glob("state.db*"):
        path.chmod(0o600)
    if is_served(federation.control):
        raise FederationError(f"the superlink of {federation.name} is running already")
    fleet = _public_socket(federation)
    sys.argv = ["flower-superlink", *_options(federation)]
    config = _parse_superlink_lifespan_config()
    config.superexec_auth_secret = secret = secrets.token_bytes(SECRET_BYTES)
    superlink = create_app(config, SuperLinkLifespan)
    tls = {"ssl_certfile": config.ssl_certfile, "ssl_keyfile": config.ssl_keyfile}
    inside = http_server(superlink, access_log=False)
    outside = http_server(FleetGate(superlink), lifespan="off", **tls)
    control, home = listen(federation.control), str(federation.home)
    start_in_background(federation.control, secret, "ttpfl.flower.server_process", home)

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
        # With isolation by process, Flower itself starts no app.
        *("--enable-supernode-auth", "--isolation", "process", "--disable-runtime-dependency-installation"),
    ]


def _public_socket(federation: Federation) -> socket.socket:
    family = socket.AF_INET6 if ":" in federation.bind else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6() and federation.bind == "::"
    try:
        return socket.create_server((federation.bind, federation.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise FederationError(f"cannot open port {federation.port}: {error.strerror}") from None
