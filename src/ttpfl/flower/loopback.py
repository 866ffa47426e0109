"""A complete federation on this machine, for trials: it runs the same scripts as real sites."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ttpfl.errors import FederationError
from ttpfl.flower.control import connected, nodes, program, register_all
from ttpfl.flower.create import check_current
from ttpfl.flower.folder import Federation, environment
from ttpfl.flower.over_socket import is_served
from ttpfl.util.files import written_in_one_step

SERVER = "superlink"
CONNECT = 300.0  # seconds to start everything; an idle machine needs about ten
STARTED_IN = "TTPFL_STARTED_IN"  # in the environment of all processes started here, and of their children

_children: dict[int, subprocess.Popen[bytes]] = {}  # of this process, by id


class Started(NamedTuple):
    """A process that was started here. Its start time tells it from a later process with the same id."""

    pid: int
    since: str

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        if (child := _children.get(self.pid)) is not None:
            child.poll()  # an ended child remains a zombie until its parent polls it
        # `since` is empty for a process that ended before its start time was read.
        return bool(self.since) and _start_time(self.pid) == self.since


def up(federation: Federation, seconds: float = CONNECT) -> None:
    """Start the server, register the sites and connect them, except those that are already running."""
    check_current(federation)  # a clear error before anything starts
    program("ttpfl")
    start(federation, SERVER)
    failure = f"the server does not respond: see {_log(federation, SERVER)}"
    _wait_or_raise(lambda: _is_server_ready(federation), seconds, failure)
    register_all(federation)
    alive = running(federation)
    join(federation, [name for name in federation.sites if name not in alive], seconds)


def join(federation: Federation, names: Sequence[str], seconds: float = CONNECT) -> None:
    """Start sites, and wait until the superlink has admitted them.

    A superlink notices only after a minute that a site was killed. Until then it rejects a new process with
    the same key, which then ends: this function starts it again, as a service would.
    """
    before = connected(federation)

    def all_joined() -> bool:
        for name in names:
            start(federation, name)
        now = connected(federation)
        return all(now.get(name) not in (None, before.get(name)) for name in names)

    _wait_or_raise(all_joined, seconds, f"not connected: see log.txt of {', '.join(names)}", every=1.0)


def start(federation: Federation, name: str) -> None:
    """Start the server or a site, unless it runs."""
    if name in (alive := running(federation)):
        return
    folder = _folder(federation, name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with open(_log(federation, name), "ab") as log:
        process = subprocess.Popen(
            [folder / "start.sh"],
            env={**environment(folder / "flwr"), "PATH": path, STARTED_IN: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _children[process.pid] = process
    _write(federation, {**alive, name: Started(process.pid, _start_time(process.pid))})


def stop(federation: Federation, name: str, sign: signal.Signals = signal.SIGTERM) -> None:
    """End the server or a site with all processes that it started; kill those that do not end in time."""
    alive = running(federation)
    if (process := alive.pop(name, None)) is not None:
        _kill(process.pid, sign)
        _wait(lambda: not process.alive, 15)

    def gone() -> bool:
        return not _processes_of(federation, name)

    # Flower's helpers end when their parent is gone, but only after a wait of up to 20 seconds if they are
    # about to retry a request.
    if not _wait(gone, 3):
        for pid in _processes_of(federation, name):
            _kill(pid, signal.SIGKILL)
        failure = f"cannot end {name}: see the processes {_processes_of(federation, name)}"
        _wait_or_raise(gone, 15, failure)
    if process is not None and (child := _children.pop(process.pid, None)) is not None:
        child.wait()
    _write(federation, alive)


def down(federation: Federation) -> None:
    """End everything that `up` started, sites first."""
    for name in (*federation.sites, SERVER):
        stop(federation, name)


def running(federation: Federation) -> dict[str, Started]:
    """The running processes, by name."""
    path = federation.home / "processes.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    return {name: process for name, entry in entries.items() if (process := Started(*entry)).alive}


def status(federation: Federation) -> dict[str, str]:
    """A description of the state of the server and of every site."""
    alive, registered = running(federation), nodes(federation)
    try:
        online = connected(federation) if is_served(federation.control) else {}
    except FederationError:
        online = {}  # the process that listens there is not a superlink
    states = {}
    for name in (SERVER, *federation.sites):
        states[name] = f"running (process {alive[name].pid})" if name in alive else "not running here"
        if name != SERVER:
            states[name] += ", registered" if name in registered else ", not registered"
        if name in online:
            states[name] += f", connected since {online[name]}"
    return states


def _is_server_ready(federation: Federation) -> bool:
    if SERVER not in running(federation):
        raise FederationError(f"the server ended at once: see {_log(federation, SERVER)}")
    return is_served(federation.control)


def _folder(federation: Federation, name: str) -> Path:
    return federation.superlink if name == SERVER else federation.site(name)


def _log(federation: Federation, name: str) -> Path:
    return _folder(federation, name) / "log.txt"


def _processes_of(federation: Federation, name: str) -> list[int]:
    """The ids of living processes that `start` started, and their children; dead ones have no environment."""
    mark = f"{STARTED_IN}={_folder(federation, name)}".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or another user's
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


def _kill(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, sign)


def _write(federation: Federation, processes: dict[str, Started]) -> None:
    with written_in_one_step(federation.home / "processes.json") as file:
        file.write(json.dumps(processes).encode())


def _start_time(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _wait_or_raise(condition: Callable[[], bool], seconds: float, failure: str, every: float = 0.1) -> None:
    if not _wait(condition, seconds, every):
        raise FederationError(failure)


def _wait(condition: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
