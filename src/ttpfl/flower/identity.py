"""Who a site is: the fingerprint of its key and the superlink's number for it, kept in `keys.toml`."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
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
"""Where the keys began in `federation.toml`, which had them at first."""


@dataclass(frozen=True)
class Identity:
    """What an answer must come from, to count as the site's."""

    fingerprint: str
    node: int | None = None
    """The superlink's number for the key; None while it is not registered."""


class Node(Protocol):
    """What Flower says of a node that is connected."""

    node_id: int
    name: str
    public_key: bytes


def fingerprint_of(public_key: bytes) -> str:
    """As `ssh-keygen -lf` shows it, of a key in OpenSSH's format or in PEM, as Flower keeps it."""
    load = load_pem_public_key if public_key.startswith(b"-----BEGIN") else load_ssh_public_key
    key = load(public_key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def read_identities(home: Path) -> dict[str, Identity]:
    """By the sites' names."""
    path = home / KEYS if (home / KEYS).exists() else home / FILE
    try:
        said = read_toml(path)
        table = said if path.name == KEYS else said.get("keys", {})
        return {
            name: Identity(str(entry["fingerprint"]), None if "node" not in entry else int(entry["node"]))
            for name, entry in table.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FederationError(f"{path}: the sites' keys cannot be read: {error!r}") from None


def write_identities(home: Path, identities: Mapping[str, Identity]) -> None:
    """In place of those that were known."""
    tables = [
        "\n".join([f"[{name}]", *(f"{key} = {_quoted(value)}" for key, value in entry)])
        for name, identity in identities.items()
        if (entry := [pair for pair in asdict(identity).items() if pair[1] is not None])
    ]
    with written_in_one_step(home / KEYS, mode=0o600) as file:
        file.write("\n\n".join([HEAD, *tables, ""]).encode())
    above, found, _ = (home / FILE).read_text().partition(OLD_MARK)
    if found:
        with written_in_one_step(home / FILE, mode=0o600) as file:
            file.write(f"{above.rstrip()}\n".encode())


def _quoted(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def recognised(
    nodes: Iterable[Node], identities: Mapping[str, Identity]
) -> tuple[dict[str, int], dict[str, str]]:
    """The connected sites by name, and what is wrong with nodes that only have the name of a site.

    >>> class Said:
    ...     node_id, name, public_key = 7, "north", b"-----BEGIN nothing"
    >>> recognised([Said()], {"north": Identity("SHA256:abc", 7)})
    ({}, {'north': 'node 7 calls itself north, but its key is not the one in keys.toml'})
    """
    known: dict[str, int] = {}
    strangers: dict[str, str] = {}
    for node in nodes:
        expected = identities.get(node.name)
        if expected is None:
            continue
        if expected.node == node.node_id and expected.fingerprint == _fingerprint_or_nothing(node.public_key):
            known[node.name] = node.node_id
        else:
            strangers[node.name] = (
                f"node {node.node_id} calls itself {node.name}, but its key is not the one in {KEYS}"
            )
    return known, {name: reason for name, reason in strangers.items() if name not in known}


def _fingerprint_or_nothing(public_key: bytes) -> str:
    try:
        return fingerprint_of(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
