"""What goes wrong in a real federation: sites, server and superlink die, and strangers knock."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

from tests.helpers.flower.in_process import largest_difference
from tests.helpers.flower.real_federation import (
    PATIENCE,
    SEARCH,
    federation_of_digits,
    history,
    learn_over,
    learned_here,
    local_rates,
    processes_below,
    started,
    tasks,
    until,
)
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings
from ttpfl.flower import control, loopback
from ttpfl.flower.certificates import make_authority, make_node_key
from ttpfl.flower.create import free_port
from ttpfl.flower.folder import Federation, environment
from ttpfl.util.locks import wait_until_free

pytestmark = pytest.mark.slow

LET_IN, WELCOME = b"Activated node_id", "SuperNode ID"  # what the superlink and the node say
KEY = "--auth-supernode-private-key"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    home = tmp_path_factory.mktemp("faults") / "trial"
    with federation_of_digits(home) as running:
        yield running


def test_a_killed_site_is_left_out_and_takes_part_again(federation: Federation, tmp_path: Path) -> None:
    before = tasks(federation, "west")
    with started(federation, tmp_path, "--rounds", "100", "--deadline", "20") as run:
        # The first task is answered with a request for the model; the second is work.
        until(lambda: tasks(federation, "west") > before + 1 or run.poll() is not None)
        loopback.stop(federation, "west", signal.SIGKILL)
        until(lambda: history(tmp_path) or run.poll() is not None)
        assert history(tmp_path)[0]["failed"] == ["west"]
        loopback.join(federation, ["west"], PATIENCE)  # takes a minute: the superlink has to miss it first
        until(lambda: history(tmp_path)[-1]["failed"] == [] or run.poll() is not None)
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, words
    assert not any(record["abandoned"] for record in history(tmp_path))


def test_the_server_app_and_the_superlink_may_be_killed(federation: Federation, tmp_path: Path) -> None:
    before = tasks(federation, "north", 1)
    with started(federation, tmp_path, *SEARCH, "--rounds", "4") as run:
        until(lambda: tasks(federation, "north", 1) > before or run.poll() is not None)
        # Sent and not yet aggregated: now the superlink dies, and with it its server app.
        loopback.stop(federation, loopback.SERVER, signal.SIGKILL)
        loopback.start(federation, loopback.SERVER)
        until(lambda: len(history(tmp_path)) >= 2 or run.poll() is not None)
        until(lambda: _server_apps(federation) or run.poll() is not None)
        for pid in _server_apps(federation):
            os.kill(pid, signal.SIGKILL)
        _, words = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, words
    settings = LearnSettings(rounds=4, batch_size=6, workers=0, check=False)
    _check_as_undisturbed(federation, tmp_path, 4, learned_here(federation, settings).rates)


def test_an_interrupted_command_stops_its_run_and_goes_on(federation: Federation, tmp_path: Path) -> None:
    with started(federation, tmp_path, "--rounds", "100") as run:
        until(lambda: history(tmp_path) or run.poll() is not None)
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, words
    assert words.splitlines()[-1].endswith("--resume")
    until(lambda: not _server_apps(federation))
    rounds = len(history(tmp_path)) + 2
    done = learn_over(federation, tmp_path, "--rounds", str(rounds), "--resume")
    assert done.returncode == 0, done.stderr
    _check_as_undisturbed(federation, tmp_path, rounds)


def test_a_killed_command_leaves_its_run_alive(federation: Federation, tmp_path: Path) -> None:
    with started(federation, tmp_path, "--rounds", "2") as run:
        until(lambda: history(tmp_path) or run.poll() is not None)
        run.kill()
    assert not wait_until_free(tmp_path, seconds=0)  # so that nobody else can write there
    assert wait_until_free(tmp_path, PATIENCE)
    _check_as_undisturbed(federation, tmp_path, rounds=2)


def _server_apps(federation: Federation) -> list[int]:
    return [pid for pid, words in processes_below(federation.home).items() if "server_process" in words]


def _check_as_undisturbed(federation: Federation, out: Path, rounds: int, local: Rates | None = None) -> None:
    assert [(record["round"], record["failed"]) for record in history(out)] == [
        (i, []) for i in range(rounds)
    ]
    found, local = Rates.load(out / "rates.safetensors"), local or local_rates(federation, rounds)
    assert local.values.any()
    assert largest_difference(found.values, local.values) < 1e-6


def test_strangers_are_refused(federation: Federation, tmp_path: Path) -> None:
    """An unregistered key, no key, an authority that did not sign the server, and plain text."""
    make_node_key(tmp_path / "stranger")
    make_authority(tmp_path, "other")
    right = {"--root-certificates": str(federation.site("west") / "ca.crt")}
    # First, one with the same options and a registered key is let in: else the rest would show nothing.
    with _registered(federation, tmp_path / "known") as key:
        begun = _log(federation)
        friend, words = _knock(federation, tmp_path, "friend", _flat(right | {KEY: str(key)}))
        try:
            until(lambda: WELCOME in words.read_text() or friend.poll() is not None)
        finally:
            friend.terminate()
            friend.wait(PATIENCE)
        assert WELCOME in words.read_text()
        assert LET_IN in _log(federation)[len(begun) :]
    attempts: dict[str, list[str]] = {
        "unregistered key": _flat(right | {KEY: str(tmp_path / "stranger")}),
        "no key": _flat(right),
        "wrong authority": _flat(
            {"--root-certificates": str(tmp_path / "ca.crt"), KEY: str(federation.site("west") / "key")}
        ),
        "plain text": ["--insecure"],
    }
    begun = _log(federation)
    started = {name: _knock(federation, tmp_path, name, options) for name, options in attempts.items()}
    for name, (process, words) in started.items():
        assert process.wait(PATIENCE) != 0, name
        assert WELCOME not in words.read_text(), name
    assert LET_IN not in _log(federation)[len(begun) :]


@contextmanager
def _registered(federation: Federation, path: Path) -> Iterator[Path]:
    """A new key that the superlink knows for a while."""
    make_node_key(path)
    public = path.with_name(f"{path.name}.pub")
    with control.superlink(federation) as link:
        key = load_ssh_public_key(public.read_bytes()).public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        node = link.RegisterNode(RegisterNodeRequest(public_key=key, name=path.name)).node_id
        yield path
        link.UnregisterNode(UnregisterNodeRequest(node_id=node))


def _knock(
    federation: Federation, folder: Path, name: str, options: list[str]
) -> tuple[subprocess.Popen[bytes], Path]:
    """A process that wants to take part, and the file with what it says."""
    words = folder / f"{name}.txt"
    program = [
        *(control.program("flower-supernode"), "--superlink", federation.address, *options),
        *("--max-retries", "1", "--max-wait-time", "5", "--isolation", "process"),
        *("--host", "127.0.0.1", "--port", str(free_port())),
    ]
    home = environment(folder / name.replace(" ", "-"))
    with words.open("w") as file:
        return subprocess.Popen(program, env=home, stdout=file, stderr=subprocess.STDOUT), words


def _log(federation: Federation) -> bytes:
    return (federation.superlink / "log.txt").read_bytes()


def _flat(options: dict[str, str]) -> list[str]:
    return [part for pair in options.items() for part in pair]
