"""Orders to a superlink, over its socket: register and lock out sites, start and watch runs."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
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
from ttpfl.flower.over_socket import answers, client_over
from ttpfl.util.files import written_in_one_step


def program(name: str) -> str:
    """A program that came with this Python, or is on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise FederationError(f"{name} is not installed: install ttpfl with the extra `flower`")
    return found


@contextmanager
def superlink(federation: Federation) -> Iterator[ControlHttpClient]:
    """The superlink's control API; what goes wrong there is a FederationError."""
    check_current(federation)
    if not answers(federation.control):
        raise FederationError(
            f"nobody answers at {federation.control}: start the superlink on this machine, and give orders "
            "as the user that runs it"
        )
    version = RuntimeVersionHttpInterceptor(component_name="ttpfl")
    client = client_over(ControlHttpClient, federation.control, [version])
    try:
        yield client
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        raise FederationError(f"the superlink refuses: {said.message if said else error}") from None
    except httpx.HTTPError as error:
        raise FederationError(f"no answer from the superlink: {error}") from None
    finally:
        client.close()


def start_run(federation: Federation, order: Path, token: str) -> int:
    """Begin a run of ttpfl's app; its number."""
    app = Fab(hash_of(bundle()), bundle(), {})
    config = user_config_to_proto({"order": str(order), "token": token})
    with superlink(federation) as link:
        begun = link.StartRun(StartRunRequest(fab=fab_to_proto(app), override_config=config))
    if not begun.HasField("run_id"):
        raise FederationError("the superlink did not begin a run: its log says why")
    return int(begun.run_id)


def stop_run(federation: Federation, run: int) -> None:
    """End a run."""
    with superlink(federation) as link:
        link.StopRun(StopRunRequest(run_id=run))


def run_status(federation: Federation, run: int) -> str:
    """What Flower says of the run, such as "running" or "finished:stopped"; empty if it does not know it."""
    with superlink(federation) as link:
        found = link.ListRuns(ListRunsRequest(run_id=run)).run_dict
    if run not in found:
        return ""
    status = found[run].status
    return f"{status.status}:{status.sub_status}" if status.sub_status else str(status.status)


def runs(federation: Federation) -> dict[int, str]:
    """The newest runs, and what Flower says of each."""
    with superlink(federation) as link:
        found = link.ListRuns(ListRunsRequest()).run_dict
    return {
        run: ":".join(filter(None, (entry.status.status, entry.status.sub_status)))
        for run, entry in found.items()
    }


def nodes(federation: Federation) -> dict[str, int]:
    """The numbers that the superlink gave to the sites that are registered."""
    known = read_identities(federation.home).items()
    return {name: identity.node for name, identity in known if identity.node is not None}


def connected(federation: Federation) -> dict[str, str]:
    """Since when the superlink has had each site that it takes for connected."""
    with superlink(federation) as link:
        said = link.ListNodes(ListNodesRequest()).nodes_info
    online = {node.node_id: node for node in said if node.status == "online"}
    known, _ = recognised(online.values(), read_identities(federation.home))
    return {name: online[node].last_activated_at for name, node in known.items()}


def register(federation: Federation, name: str) -> None:
    """Let the site with the key in its folder in, under its name."""
    known = read_identities(federation.home)
    content = read_public_key(federation.site(name) / "key.pub")
    fingerprint = fingerprint_of(content)
    before = known.get(name, Identity(fingerprint))
    if before.node is not None:
        raise FederationError(f"{name!r} is registered already: use rotate to give it another key")
    if before.fingerprint != fingerprint:
        raise FederationError(
            f"{federation.site(name) / 'key.pub'} is {fingerprint}, but {KEYS} says "
            f"{before.fingerprint} of {name!r}: use rotate to give it another key"
        )
    # As Flower keeps keys.
    key = load_ssh_public_key(content).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with superlink(federation) as link:
        node = int(link.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id)
    write_identities(federation.home, {**known, name: Identity(fingerprint, node)})


def register_all(federation: Federation) -> list[str]:
    """Those that are not registered yet."""
    known, new, failures = nodes(federation), [], []
    for name in federation.sites:
        if name not in known:
            try:
                register(federation, name)
                new.append(name)
            except FederationError as error:
                failures.append(f"{name}: {error}")
    if failures:
        raise FederationError(f"not registered: {'; '.join(failures)}. The others are: repeat it for these")
    return new


def revoke(federation: Federation, name: str) -> None:
    """Lock a site out: nothing that is signed with its key is accepted any more."""
    known = read_identities(federation.home)
    if name not in known or (node := known.pop(name).node) is None:
        raise FederationError(f"{name!r} is not registered: nothing to revoke")
    with superlink(federation) as link:
        link.UnregisterNode(UnregisterNodeRequest(node_id=node))
    write_identities(federation.home, known)


def rotate(federation: Federation, name: str, public_key: Path | None = None) -> None:
    """Another key for a site: the old one is locked out, the new one let in. Restart the site with it.

    Without `public_key` a new pair is made in the site's folder here.
    """
    folder = federation.site(name)
    # Read and checked first: a key that cannot be let in shall not cost the site the one that it has.
    given = None if public_key is None else read_public_key(public_key)
    if name in nodes(federation):
        revoke(federation, name)
    if given is None:
        make_node_key(folder / "key")
    else:
        with written_in_one_step(folder / "key.pub", mode=0o644) as file:
            file.write(given)
    known = read_identities(federation.home)
    fingerprint = fingerprint_of((folder / "key.pub").read_bytes())
    write_identities(federation.home, {**known, name: Identity(fingerprint)})
    register(federation, name)
