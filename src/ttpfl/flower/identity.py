"""A site's identity: the fingerprint of its key and the superlink's number for it, stored in `keys.toml`."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)

from ttpfl.errors import FederationError
from ttpfl.flower.folder import FILE
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import read_toml

KEYS = "keys.toml"
HEAD = (
    "# Which key each site has (`ssh-keygen -lf key.pub`). Written by ttpfl flower: register, rotate, revoke."
)
OLD_MARK = "# Below: which key each site has"
"""The line above the keys in a `federation.toml` of older versions, which listed them there."""


@dataclass(frozen=True)
class Identity:
    """The key and node that a reply must come from, to count as the site's."""

    fingerprint: str
    node: int | None = None
    """The superlink's number for the key; None until it is registered."""


class Node(Protocol):
    """What Flower reports of a connected node."""

    node_id: int
    name: str
    public_key: bytes


def fingerprint_of(public_key: bytes) -> str:
    """The fingerprint as `ssh-keygen -lf` shows it; the key is in OpenSSH format or in Flower's, PEM."""
    load = load_pem_public_key if public_key.startswith(b"-----BEGIN") else load_ssh_public_key
    key = load(public_key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def read_identities(home: Path) -> dict[str, Identity]:
    """Read the identities of sites, by name."""
    path = home / KEYS if (home / KEYS).exists() else home / FILE
    try:
        content = read_toml(path)
        table = content if path.name == KEYS else content.get("keys", {})
        return {
            name: Identity(str(entry["fingerprint"]), None if "node" not in entry else int(entry["node"]))
            for name, entry in table.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FederationError(f"{path}: cannot read the sites' keys: {error!r}") from None


def write_identities(home: Path, identities: Mapping[str, Identity]) -> None:
    """Replace the stored identities."""
    tables = [
        f'[{name}]\nfingerprint = "{identity.fingerprint}"'
        + ("" if identity.node is None else f"\nnode = {identity.node}")
        for name, identity in identities.items()
    ]
    with written_in_one_step(home / KEYS, mode=0o600) as file:
        file.write("\n\n".join([HEAD, *tables, ""]).encode())
    above, mark, _ = (home / FILE).read_text().partition(OLD_MARK)
    if mark:
        with written_in_one_step(home / FILE, mode=0o600) as file:
            file.write(f"{above.rstrip()}\n".encode())


def recognised(
    nodes: Iterable[Node], identities: Mapping[str, Identity]
) -> tuple[dict[str, int], dict[str, str]]:
    """The numbers of connected sites by name, and why other nodes with the name of a site are impostors.

    >>> class Claimed:
    ...     node_id, name, public_key = 7, "north", b"-----BEGIN nothing"
    >>> recognised([Claimed()], {"north": Identity("SHA256:abc", 7)})
    ({}, {'north': 'node 7 calls itself north, but its key is not the one in keys.toml'})
    """
    sites: dict[str, int] = {}
    impostors: dict[str, str] = {}
    for node in nodes:
        if (expected := identities.get(node.name)) is None:
            continue
        if expected.node == node.node_id and expected.fingerprint == _fingerprint_or_empty(node.public_key):
            sites[node.name] = node.node_id
        else:
            claim = f"node {node.node_id} calls itself {node.name}"
            impostors[node.name] = f"{claim}, but its key is not the one in {KEYS}"
    return sites, {name: reason for name, reason in impostors.items() if name not in sites}


def _fingerprint_or_empty(public_key: bytes) -> str:
    try:
        return fingerprint_of(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
