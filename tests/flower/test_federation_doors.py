"""Strangers, impostors and a hostile operator at a real federation: none of their code runs, all is noted."""

import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.supercore.fab import Fab

from tests.helpers.flower.foreign_app import ForeignApp
from tests.helpers.flower.in_process import NAMES
from tests.helpers.flower.real_federation import (
    PATIENCE,
    audit,
    federation_of_digits,
    history,
    learn_over,
    processes_below,
    until,
)
from ttpfl.flower import control, loopback
from ttpfl.flower.bundle import hash_of
from ttpfl.flower.certificates import make_node_key
from ttpfl.flower.folder import Federation, environment
from ttpfl.flower.site import runtime_socket

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.2"  # an address of this machine that is not the usual one: the server listens on all


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with federation_of_digits(tmp_path_factory.mktemp("doors") / "trial", host=ELSEWHERE) as running:
        yield running


def test_only_the_fleet_api_is_on_the_network(federation: Federation) -> None:
    ports = {name: listening(federation, name) for name in ("superlink", *NAMES)}
    assert ports["superlink"] == {("0.0.0.0", federation.port)}
    assert {name: ports[name] for name in NAMES} == {name: set() for name in NAMES}
    authority = ssl.create_default_context(cafile=federation.site("north") / "ca.crt")
    with httpx.Client(verify=authority, base_url=f"https://{federation.address}") as stranger:
        for path in (
            "/v1/control/start-run",
            "/v1/control/register-node",
            "/v1/runtime/acquire-task",
            "/docs",
        ):
            assert stranger.post(path).status_code == 404, path
        assert stranger.post("/v1/fleet/pull-messages").status_code in (400, 401, 415)
    for name in NAMES:
        path = runtime_socket(federation.site(name))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as stranger:
            url = "http://site/v1/runtime/acquire-task"
            assert stranger.post(url, headers={"content-type": "application/x-protobuf"}).is_client_error


def test_the_servers_state_is_its_users_alone(federation: Federation) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in federation.superlink.iterdir()}
    assert stat.S_IMODE(federation.superlink.stat().st_mode) == 0o700
    assert modes["state.db"] == modes["control.sock"] == 0o600


def test_a_stranger_with_the_certificate_starts_nothing(federation: Federation, tmp_path: Path) -> None:
    foreign = ForeignApp(tmp_path)
    assert foreign.run(federation.address, federation.site("north") / "ca.crt") != ""
    assert control.runs(federation) == {}


def test_who_has_the_socket_cannot_start_another_app(federation: Federation, tmp_path: Path) -> None:
    foreign = ForeignApp(tmp_path)
    archive = foreign.archive()
    with control.superlink(federation) as link:
        request = StartRunRequest(fab=fab_to_proto(Fab(hash_of(archive), archive, {})))
        run = link.StartRun(request).run_id
    until(lambda: control.run_status(federation, run) == "finished:failed")
    assert foreign.has_run() == set()
    assert f"the app {hash_of(archive)[:8]} is not that of" in log(federation)


def test_an_impostor_is_not_counted(federation: Federation, tmp_path: Path) -> None:
    folder = tmp_path / "north"
    shutil.copytree(
        federation.site("north"), folder, ignore=shutil.ignore_patterns("flwr", "*.jsonl", "*.txt")
    )
    make_node_key(folder / "key")
    public = load_ssh_public_key((folder / "key.pub").read_bytes())
    key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    loopback.stop(federation, "north")
    with control.superlink(federation) as link:
        node = link.RegisterNode(RegisterNodeRequest(public_key=key, name="north")).node_id

        def is_online() -> bool:
            said = link.ListNodes(ListNodesRequest()).nodes_info
            return any(one.node_id == node and one.status == "online" for one in said)

        with started(federation, [folder / "start.sh"]):
            until(is_online)
            assert "north" not in control.connected(federation)
            done = learn_over(federation, tmp_path / "run", "--rounds", "1", "--deadline", "30")
    assert done.returncode == 0, done.stderr
    assert history(tmp_path / "run")[0]["failed"] == ["north"]
    assert f"node {node} calls itself north, but its key is not the one in keys.toml" in log(federation)
    assert not (folder / "audit.jsonl").exists()  # it did not even get a task
    loopback.join(federation, ["north"], PATIENCE)


def test_a_hostile_operator_runs_nothing_at_sites(federation: Federation, tmp_path: Path) -> None:
    """Flower's own superlink in place of ours, with the server's certificate: it takes any app."""
    foreign, certificates = ForeignApp(tmp_path), federation.certificates
    before = {name: len(audit(federation, name)) for name in NAMES}
    loopback.stop(federation, loopback.SERVER)
    hostile = [
        *(control.program("flower-superlink"), "--host", "0.0.0.0", "--port", str(federation.port)),
        *("--ssl-ca-certfile", certificates / "ca.crt", "--ssl-certfile", certificates / "server.crt"),
        *("--ssl-keyfile", certificates / "server.key", "--enable-supernode-auth"),
        *("--database", federation.superlink / "state.db", "--disable-runtime-dependency-installation"),
    ]
    with started(federation, hostile):
        until(lambda: listens(federation.port))
        assert foreign.run(federation.address, federation.site("north") / "ca.crt") == ""
        until(lambda: foreign.replies() is not None)
    assert foreign.has_run() == {"server"}
    said = foreign.replies() or []
    assert len(said) == 3
    assert all("is not that of the installed ttpfl" in reason for reason in said), said
    expected = hash_of(foreign.archive())
    for name in NAMES:
        came, went = audit(federation, name)[before[name] :][:2]
        assert (came["direction"], came["app_hash"]) == ("in", expected)
        assert went["error"].startswith(f"refused: the app {expected[:8]} is not that of")


def log(federation: Federation) -> str:
    return (federation.superlink / "log.txt").read_text()


@contextmanager
def started(federation: Federation, command: list[str | Path], **more: str) -> Iterator[None]:
    """A program of strangers, which is gone afterwards with all that it started."""
    home = federation.home / "strangers"
    home.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(control.program("ttpfl")).parent), os.environ["PATH"]])
    words = home / "log.txt"
    with (
        words.open("w") as file,
        subprocess.Popen(
            command,
            env={**environment(home / "flwr"), "PATH": path, **more},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
    until(lambda: not processes_below(home))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ELSEWHERE, port)) == 0


def listening(federation: Federation, part: str) -> set[tuple[str, int]]:
    """Where the processes of a part take connections from a network, by the kernel's own tables."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":  # listening
                address, port = local.split(":")
                inodes[f"socket:[{inode}]"] = (_dotted(address), int(port, 16))
    found = set()
    for process in loopback._processes_of(federation, part):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target in inodes:
                found.add(inodes[target])
    return found


def _dotted(address: str) -> str:
    if len(address) > 8:
        return f"[{address}]"  # none of ours is
    return socket.inet_ntoa(bytes.fromhex(address)[::-1])
