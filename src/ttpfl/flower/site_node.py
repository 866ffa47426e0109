"""A site's side of the connection: Flower's supernode fetches messages, and our own process answers them."""

import json
import os
import secrets
import sys
from pathlib import Path

from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli import flower_supernode

from ttpfl.flower.site import Site
from ttpfl.flower.tasks import SECRET_BYTES, may_acquire, start_in_background

LOOPBACK = "127.0.0.1"


def join(folder: Path, superlink: str, port: int) -> None:
    """Take part until a signal ends it.

    Args:
        folder: the site's.
        superlink: host:port.
        port: on 127.0.0.1, by which the supernode and the process for a message speak with each other.
    """
    os.umask(0o077)
    folder = folder.resolve()
    Site.read(folder / "site.toml")  # an error now, and not at the first message
    secret, address = secrets.token_bytes(SECRET_BYTES), f"{LOOPBACK}:{port}"
    client = RuntimeHttpClient.from_server_address(
        address,
        insecure=True,
        root_certificates=None,
        interceptors=may_acquire(secret),
        retry_invoker=make_simple_http_retry_invoker(),
    )
    start_in_background(client, "ttpfl.flower.site_process", address)
    sys.argv = [
        *("flower-supernode", "--superlink", superlink),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / "key")),
        *("--node-config", f"site={json.dumps(str(folder / 'site.toml'))}"),
        *("--host", LOOPBACK, "--port", str(port)),
        # Flower starts no app by itself, and gives messages only to who knows the secret; it is on no disk.
        *("--isolation", "process", "--superexec-auth-secret-file", _readable(secret)),
    ]
    flower_supernode()


def _readable(secret: bytes) -> str:
    """A path that the secret can be read from, once, by this process."""
    read, write = os.pipe()
    os.write(write, secret)
    os.close(write)
    return f"/dev/fd/{read}"
