"""Orders to a superlink, by Flower's own command: register and lock out sites, start and watch runs."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from ttpfl.errors import FederationError
from ttpfl.files import written_in_one_step
from ttpfl.flower.certificates import make_node_key, read_public_key
from ttpfl.flower.folder import Federation, environment

NODES = "nodes.json"


def program(name: str) -> str:
    """A program of Flower's, beside the Python that runs, or on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise FederationError(f"{name} is not installed: install ttpfl with the extra `flower`")
    return found


def flwr(federation: Federation, *arguments: str, seconds: float = 300) -> dict[str, Any]:
    """What the command `flwr ... --format json` says; an error if it does not succeed."""
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command,
            env=environment(federation.home / "admin"),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            start_new_session=True,  # Ctrl-C is for the command that asks, which may still want the answer
        )
    except subprocess.TimeoutExpired:
        raise FederationError(f"flwr {arguments[0]}: no answer from {federation.address}") from None
    try:
        # Notes to the reader may stand in front.
        said: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        said = {}
    if not said.get("success"):
        reason = said.get("error-message") or (done.stderr or done.stdout).strip() or "no message"
        raise FederationError(f"flwr {arguments[0]}: {reason}")
    return said


def nodes(federation: Federation) -> dict[str, int]:
    """The ids that the superlink gave to the sites that are registered."""
    path = federation.superlink / NODES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def connected(federation: Federation) -> dict[str, str]:
    """Since when the superlink has had each site that it takes for connected."""
    said = flwr(federation, "supernode", "list", "federation")["nodes"]
    since = {int(node["node-id"]): str(node["online-at"]) for node in said if node["status"] == "online"}
    return {name: since[node] for name, node in nodes(federation).items() if node in since}


def register(federation: Federation, name: str, public_key: Path | None = None) -> None:
    """Let the site with this key in, under its name."""
    known = nodes(federation)
    if name in known:
        raise FederationError(f"{name!r} is registered already: use rotate to give it another key")
    _write(federation, {**known, name: _let_in(federation, name, public_key)})


def register_all(federation: Federation) -> list[str]:
    """Those that are not registered yet."""
    known = nodes(federation)
    new = [name for name in federation.sites if name not in known]
    failures: dict[str, str] = {}
    # Side by side: each takes seconds, since the command has to start.
    with ThreadPoolExecutor(8) as pool:
        tasks = {pool.submit(_let_in, federation, name): name for name in new}
        for done in as_completed(tasks):
            try:
                known[tasks[done]] = done.result()
            except FederationError as error:
                failures[tasks[done]] = str(error)
                continue
            _write(federation, known)  # at once: without its number nobody can lock the site out again
    if failures:
        reasons = "; ".join(f"{name}: {failures[name]}" for name in sorted(failures))
        raise FederationError(f"not registered: {reasons}. The others are: repeat it for these")
    return new


def _let_in(federation: Federation, name: str, public_key: Path | None = None) -> int:
    key = public_key or federation.site(name) / "key.pub"
    said = flwr(federation, "supernode", "register", str(key), "federation", "--name", name)
    return int(said["node-id"])


def revoke(federation: Federation, name: str) -> None:
    """Lock a site out: nothing that is signed with its key is accepted any more."""
    known = nodes(federation)
    if name not in known:
        raise FederationError(f"{name!r} is not registered: nothing to revoke")
    flwr(federation, "supernode", "unregister", str(known.pop(name)), "federation")
    _write(federation, known)


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
        with written_in_one_step(folder / "key.pub") as file:
            file.write(given)
    register(federation, name)


def _write(federation: Federation, known: dict[str, int]) -> None:
    with written_in_one_step(federation.superlink / NODES) as file:
        file.write(json.dumps(known).encode())
