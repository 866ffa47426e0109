"""A site's side of the connection: Flower's supernode fetches messages, and our own process answers them.

The two talk over a Unix socket in the site's folder. On a port, whoever else has a login on the machine could
answer in the supernode's place, and hand out messages of their own.
"""

import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli.flower_supernode import _parse_supernode_lifespan_config
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal

from ttpfl.errors import FederationError
from ttpfl.flower.over_socket import answers, client_over, listen
from ttpfl.flower.site import Site, runtime_socket
from ttpfl.flower.tasks import SECRET_BYTES, may_acquire, start_in_background

CLOSING = 5.0  # seconds for requests under way when the site is stopped


def join(folder: Path, superlink: str) -> None:
    """Take part until a signal ends it.

    Args:
        folder: the site's.
        superlink: host:port.
    """
    os.umask(0o077)
    folder = folder.resolve()
    Site.read(folder / "site.toml")  # an error now, and not at the first message
    sys.argv = [
        *("flower-supernode", "--superlink", superlink),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / "key")),
        *("--isolation", "process"),  # Flower starts no app by itself
    ]
    config = _parse_supernode_lifespan_config()
    states, secret = (
        NodeStateFactory(objectstore_factory=ObjectStoreFactory()),
        secrets.token_bytes(SECRET_BYTES),
    )
    with served(
        create_app(state_factory=states, superexec_auth_secret=secret), runtime_socket(folder)
    ) as path:
        client = client_over(RuntimeHttpClient, path, may_acquire(secret), make_simple_http_retry_invoker())
        start_in_background(client, "ttpfl.flower.site_process", str(folder))
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
    """The app, once it answers on a socket for this user alone, in a folder that nobody else can enter."""
    if answers(path):
        raise FederationError(
            f"a process answers at {path} already: stop this site before you start it again"
        )
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        bound = listen(path)
    except OSError as error:
        raise FederationError(f"the socket {path} cannot be opened: {error.strerror}") from None
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            access_log=False,
            log_config=get_uvicorn_log_config(console_handler.level),
        )
    )
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True, name="runtime")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise FederationError(f"Flower's runtime API did not start on {path}: the log says why")
            time.sleep(0.01)
        yield path
    finally:
        server.should_exit = True
        thread.join(CLOSING)
        path.unlink(missing_ok=True)
