"""Commands to a superlink, over its socket: register and revoke sites, start and watch runs."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto import control_pb2 as pb
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from ttpfl.errors import FederationError
from ttpfl.flower.bundle import bundle, hash_of
from ttpfl.flower.certificates import make_node_key, read_public_key
from ttpfl.flower.create import check_current
from ttpfl.flower.folder import Federation
from ttpfl.flower.identity import (
    KEYS,
    Identity,
    fingerprint_of,
    read_identities,
    recognised,
    write_identities,
)
from ttpfl.flower.over_socket import client_over, is_served
from ttpfl.util.files import written_in_one_step


def program(name: str) -> str:
    """The path of a program that is installed with this Python or on PATH."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        raise FederationError(f"{name} is not installed: install ttpfl with the extra `flower`")
    return path


@contextmanager
def superlink(federation: Federation) -> Iterator[ControlHttpClient]:
    """Connect to the superlink's control API; its errors become a FederationError."""
    check_current(federation)
    if not is_served(federation.control):
        raise FederationError(
            f"nothing listens on {federation.control}: start the superlink on this machine, "
            "and run this command as its user"
        )
    version = RuntimeVersionHttpInterceptor(component_name="ttpfl")
    client = client_over(ControlHttpClient, federation.control, [version])
    try:
        yield client
    except httpx.HTTPStatusError as error:
        refusal = FlowerError.from_json(error.response.text)
        raise FederationError(f"the superlink refuses: {refusal.message if refusal else error}") from None
    except httpx.HTTPError as error:
        raise FederationError(f"no response from the superlink: {error}") from None
    finally:
        client.close()


def start_run(federation: Federation, spec: Path, token: str) -> int:
    """Start a run of ttpfl's app, and return its number."""
    app = Fab(hash_of(bundle()), bundle(), {})
    config = user_config_to_proto({"order": str(spec), "token": token})
    with superlink(federation) as link:
        started = link.StartRun(pb.StartRunRequest(fab=fab_to_proto(app), override_config=config))
    if not started.HasField("run_id"):
        raise FederationError("the superlink did not start a run: see its log")
    return int(started.run_id)


def stop_run(federation: Federation, run: int) -> None:
    """Stop a run."""
    with superlink(federation) as link:
        link.StopRun(pb.StopRunRequest(run_id=run))


def run_status(federation: Federation, run: int) -> str:
    """Flower's status of the run, such as "running" or "finished:stopped"; empty if it is unknown."""
    return runs(federation, run).get(run, "")


def runs(federation: Federation, run: int | None = None) -> dict[int, str]:
    """Flower's status of the newest runs, or of one run."""
    with superlink(federation) as link:
        entries = link.ListRuns(pb.ListRunsRequest(run_id=run)).run_dict
    return {
        number: ":".join(filter(None, (entry.status.status, entry.status.sub_status)))
        for number, entry in entries.items()
    }


def nodes(federation: Federation) -> dict[str, int]:
    """The superlink's number for every registered site."""
    identities = read_identities(federation.home).items()
    return {name: identity.node for name, identity in identities if identity.node is not None}


def connected(federation: Federation) -> dict[str, str]:
    """The connected sites, and since when the superlink has regarded each as connected."""
    with superlink(federation) as link:
        nodes_info = link.ListNodes(pb.ListNodesRequest()).nodes_info
    online = {node.node_id: node for node in nodes_info if node.status == "online"}
    sites, _ = recognised(online.values(), read_identities(federation.home))
    return {name: online[node].last_activated_at for name, node in sites.items()}


def register(federation: Federation, name: str) -> None:
    """Admit a site with the key in its folder."""
    identities = read_identities(federation.home)
    path = federation.site(name) / "key.pub"
    content = read_public_key(path)
    fingerprint = fingerprint_of(content)
    before = identities.get(name, Identity(fingerprint))
    if before.node is not None:
        raise FederationError(f"{name!r} is already registered: use rotate to replace its key")
    if before.fingerprint != fingerprint:
        raise FederationError(
            f"{path} is {fingerprint}, but {KEYS} has {before.fingerprint} for {name!r}: "
            "use rotate to replace its key"
        )
    # The format in which Flower stores keys.
    key = load_ssh_public_key(content).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with superlink(federation) as link:
        node = int(link.RegisterNode(pb.RegisterNodeRequest(public_key=key, name=name)).node_id)
    write_identities(federation.home, {**identities, name: Identity(fingerprint, node)})


def register_all(federation: Federation) -> list[str]:
    """Register all sites that are not registered yet, and return their names."""
    registered, new, failures = nodes(federation), [], []
    for name in federation.sites:
        if name not in registered:
            try:
                register(federation, name)
                new.append(name)
            except FederationError as error:
                failures.append(f"{name}: {error}")
    if failures:
        raise FederationError(
            f"not registered: {'; '.join(failures)}. All other sites are: repeat the command for these"
        )
    return new


def revoke(federation: Federation, name: str) -> None:
    """Lock a site out: the superlink no longer accepts anything that is signed with its key."""
    identities = read_identities(federation.home)
    if name not in identities or (node := identities.pop(name).node) is None:
        raise FederationError(f"{name!r} is not registered: nothing to revoke")
    with superlink(federation) as link:
        link.UnregisterNode(pb.UnregisterNodeRequest(node_id=node))
    write_identities(federation.home, identities)


def rotate(federation: Federation, name: str, public_key: Path | None = None) -> None:
    """Replace a site's key: lock the old one out, and admit the new one. Restart the site with it.

    Without `public_key`, a new key pair is created in the site's folder here.
    """
    folder = federation.site(name)
    # Read and checked first: a key that cannot be admitted must not cost the site its present one.
    new_key = None if public_key is None else read_public_key(public_key)
    if name in nodes(federation):
        revoke(federation, name)
    if new_key is None:
        make_node_key(folder / "key")
    else:
        with written_in_one_step(folder / "key.pub", mode=0o644) as file:
            file.write(new_key)
    fingerprint = fingerprint_of((folder / "key.pub").read_bytes())
    write_identities(federation.home, {**read_identities(federation.home), name: Identity(fingerprint)})
    register(federation, name)
