"""A site's side of the connection: Flower's supernode fetches messages, and ttpfl's processes reply to them.

The two communicate over a Unix socket in the site's folder. On a port, any other user of the machine could
pose as the supernode, and hand out forged messages.
"""

import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.cli.flower_supernode import _parse_supernode_lifespan_config
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal

from ttpfl.errors import FederationError
from ttpfl.flower.over_socket import http_server, is_served, listen
from ttpfl.flower.site import Site, runtime_socket
from ttpfl.flower.tasks import SECRET_BYTES, start_in_background

CLOSING = 5.0  # seconds for open requests when the site stops


def join(folder: Path, superlink: str) -> None:
    """Run the site in `folder` until a signal ends it. `superlink` is host:port."""
    os.umask(0o077)
    folder = folder.resolve()
    Site.read(folder / "site.toml")  # report an error now, not at the first message
    sys.argv = [
        *("flower-supernode", "--superlink", superlink),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / "key")),
        *("--isolation", "process"),  # Flower itself starts no app
    ]
    config = _parse_supernode_lifespan_config()
    states = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    secret = secrets.token_bytes(SECRET_BYTES)
    runtime = create_app(state_factory=states, superexec_auth_secret=secret)
    with served(runtime, runtime_socket(folder)) as path:
        start_in_background(path, secret, "ttpfl.flower.site_process", str(folder))
        start_client_internal(
            state_factory=states,
            server_address=config.server_address,
            root_certificates=config.root_certificates,
            insecure=config.insecure,
            authentication_keys=config.authentication_keys,
            node_config={},
            isolation=config.isolation,
        )


@contextmanager
def served(app: FastAPI, path: Path) -> Iterator[Path]:
    """Serve the app on a socket for this user alone, in a folder that nobody else can enter."""
    if is_served(path):
        raise FederationError(f"another process serves {path}: stop this site before you start it again")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        bound = listen(path)
    except OSError as error:
        raise FederationError(f"cannot open the socket {path}: {error.strerror}") from None
    server = http_server(app, access_log=False)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True, name="runtime")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise FederationError(f"Flower's runtime API did not start on {path}: see the log")
            time.sleep(0.01)
        yield path
    finally:
        server.should_exit = True
        thread.join(CLOSING)
        path.unlink(missing_ok=True)
