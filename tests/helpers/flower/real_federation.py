"""A federation of real processes on 127.0.0.1, with TLS and node keys, for tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.flower.in_process import NAMES, begin_model, local_clients
from ttpfl.core.rates import Rates
from ttpfl.data import load
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.rate_run import Learned
from ttpfl.flower import loopback
from ttpfl.flower.create import create
from ttpfl.flower.folder import Federation

PATIENCE = 600  # seconds: machines that run tests may be very busy with other things
DEADLINE = "300"


@contextmanager
def federation_of_digits(home: Path, images: int = 60, host: str = "127.0.0.1") -> Iterator[Federation]:
    """Three connected sites, each with digits of another domain."""
    digits = load("digits")
    rows = [np.flatnonzero(digits.domain == number)[::7][:images] for number in range(len(NAMES))]
    with connected(home, [{"x": digits.x[own], "y": digits.y[own]} for own in rows], host) as federation:
        begin_model(home / "model.safetensors")
        yield federation


@contextmanager
def connected(
    home: Path, arrays: Sequence[dict[str, Any]], host: str = "127.0.0.1", more: str = ""
) -> Iterator[Federation]:
    """Three connected sites with these arrays, and `more` in their files; nothing is left afterwards."""
    federation = create(home, NAMES, host)
    for name, own in zip(NAMES, arrays, strict=True):
        np.savez(federation.site(name) / "data" / "source" / "own.npz", **own)
        config = federation.site(name) / "site.toml"
        config.write_text(more + config.read_text())
    try:
        loopback.up(federation, PATIENCE)
        yield federation
    finally:
        loopback.down(federation)
        assert processes_below(home) == {}


SEARCH = ("--optimizer", "trust-region", "--no-check")


def command(federation: Federation, out: Path, *more: str) -> list[str]:
    """`ttpfl learn` over the federation, with time enough for a site on a machine that is busy.

    It is SGD, unless `more` names another optimizer.
    """
    optimizer = () if "--optimizer" in more else ("--lr", "5")
    return [
        *(sys.executable, "-m", "ttpfl", "learn", str(federation.home / "model.safetensors")),
        *("--engine", "flower", "--federation", str(federation.home), "--out", str(out)),
        *("--batch-size", "6", *optimizer, "--deadline", DEADLINE, *more),
    ]


def started(federation: Federation, out: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(federation, out, *more),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as in a terminal
    )


def learn_over(federation: Federation, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(federation, out, *more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def local_rates(federation: Federation, rounds: int) -> Rates:
    return learned_here(federation, LearnSettings(rounds=rounds, batch_size=6, lr=5.0, workers=0)).rates


def learned_here(federation: Federation, settings: LearnSettings) -> Learned:
    """What the local engine learns from the sites' data."""
    sites = {name: federation.site(name) / "site.toml" for name in NAMES}
    model = begin_model(federation.home / "model.safetensors")
    return learn(model, local_clients(sites), settings)


def audit(federation: Federation, site: str) -> list[dict[str, Any]]:
    return _whole_lines(federation.site(site) / "audit.jsonl")


def tasks(federation: Federation, site: str, number: int | None = None) -> int:
    """How many tasks the site has got, of any round or of those with this number."""
    came = [e for e in audit(federation, site) if (e["type"], e["direction"]) == ("train.task", "in")]
    return sum(number is None or e["records"]["task"]["round"] == number for e in came)


def history(out: Path) -> list[dict[str, Any]]:
    return _whole_lines(out / "history.jsonl")


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    # A line that is being written at this moment has no end yet.
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def until(true: Callable[[], Any], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def processes_below(home: Path) -> dict[int, str]:
    """Processes whose Flower home is in the federation's folder: command lines by id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if f"FLWR_HOME={home}/".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found
