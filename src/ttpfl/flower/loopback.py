"""A complete federation on this machine, for trying out: the scripts that real sites use, started here."""

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
from ttpfl.flower.over_socket import answers
from ttpfl.util.files import written_in_one_step

SERVER = "superlink"
CONNECT = 300.0  # seconds that a machine may take to start everything: it takes some ten, if not busy
STARTED_IN = "TTPFL_STARTED_IN"  # in the environment of all that is started here, and of what that starts

_children: dict[int, subprocess.Popen[bytes]] = {}  # of this process, by their id


class Started(NamedTuple):
    """A process that was started here; a later one with the same number has another time."""

    pid: int
    since: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        if (child := _children.get(self.pid)) is not None:
            child.poll()  # a child that has ended is gone only when its parent has looked
        # One that ended before anybody looked has no time, and one that is gone has none, either.
        return bool(self.since) and _since(self.pid) == self.since


def up(federation: Federation, seconds: float = CONNECT) -> None:
    """Start the server, register the sites, and connect them; what runs already is left alone."""
    check_current(federation)  # a clear error before anything is started
    program("ttpfl")
    start(federation, SERVER)
    log = _log(federation, SERVER)
    _until(lambda: _answers(federation), seconds, f"the server does not answer: see {log}")
    register_all(federation)
    alive = running(federation)
    join(federation, [name for name in federation.sites if name not in alive], seconds)


def join(federation: Federation, names: Sequence[str], seconds: float = CONNECT) -> None:
    """Start sites, and wait until the superlink has let them in.

    A superlink misses a site that was killed only after a minute. Until then it takes it for connected, and
    sends a new process with its key away, which then ends: it is started again, as a service would be.
    """
    before = connected(federation)

    def inside() -> bool:
        for name in names:
            start(federation, name)
        now = connected(federation)
        return all(now.get(name) not in (None, before.get(name)) for name in names)

    _until(inside, seconds, f"not connected: see log.txt of {', '.join(names)}", every=1.0)


def start(federation: Federation, name: str) -> None:
    """Start one part, unless it runs."""
    if (known := running(federation)).get(name):
        return
    folder = _folder(federation, name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with open(_log(federation, name), "ab") as log:
        process = subprocess.Popen(
            [folder / "start.sh"],
            env={
                **environment(folder / "flwr"),  # as the script itself sets it
                "PATH": path,
                STARTED_IN: str(folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _children[process.pid] = process
    _write(federation, {**known, name: Started(process.pid, _since(process.pid))})


def stop(federation: Federation, name: str, sign: signal.Signals = signal.SIGTERM) -> None:
    """End one part with all that it started; what does not end in time, by force."""
    known = running(federation)
    if (process := known.pop(name, None)) is not None:
        _kill(process.pid, sign)
        _comes_true(lambda: not process.alive, 15)

    def gone() -> bool:
        return not _processes_of(federation, name)

    # Flower's helpers look whether their parent lives, but one that waits to repeat a request, which may take
    # 20 seconds, ends only after that.
    if not _comes_true(gone, 3):
        for pid in _processes_of(federation, name):
            _kill(pid, signal.SIGKILL)
        _until(gone, 15, f"{name} cannot be ended: see the processes {_processes_of(federation, name)}")
    if process is not None and (child := _children.pop(process.pid, None)) is not None:
        child.wait()
    _write(federation, known)


def down(federation: Federation) -> None:
    """End all that `up` started, sites first."""
    for name in (*federation.sites, SERVER):
        stop(federation, name)


def running(federation: Federation) -> dict[str, Started]:
    """What runs, by name."""
    path = federation.home / "processes.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    started = {name: Started(*entry) for name, entry in known.items()}
    return {name: process for name, process in started.items() if process.alive}


def status(federation: Federation) -> dict[str, str]:
    """Every part in words."""
    alive, registered = running(federation), nodes(federation)
    try:
        inside = connected(federation) if answers(federation.control) else {}
    except FederationError:
        inside = {}  # what listens there does not answer as a superlink does
    words = {SERVER: f"runs (process {alive[SERVER].pid})" if SERVER in alive else "does not run here"}
    for name in federation.sites:
        runs = f"runs (process {alive[name].pid})" if name in alive else "does not run here"
        words[name] = runs + (", registered" if name in registered else ", not registered")
        words[name] += f", connected since {inside[name]}" if name in inside else ""
    return words


def _answers(federation: Federation) -> bool:
    if SERVER not in running(federation):
        raise FederationError(f"the server ended at once: see {_log(federation, SERVER)}")
    return answers(federation.control)


def _folder(federation: Federation, name: str) -> Path:
    return federation.superlink if name == SERVER else federation.site(name)


def _log(federation: Federation, name: str) -> Path:
    return _folder(federation, name) / "log.txt"


def _processes_of(federation: Federation, name: str) -> list[int]:
    """The ids of all living processes that `start` began for a part. Dead ones have no environment."""
    mark = f"{STARTED_IN}={_folder(federation, name)}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or another user's
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _kill(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, sign)


def _write(federation: Federation, known: dict[str, Started]) -> None:
    with written_in_one_step(federation.home / "processes.json") as file:
        file.write(json.dumps(known).encode())


def _since(pid: int) -> str:
    """When a process began, in the system's own count; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _until(true: Callable[[], bool], seconds: float, trouble: str, every: float = 0.1) -> None:
    if not _comes_true(true, seconds, every):
        raise FederationError(trouble)


def _comes_true(true: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
