"""Submit a run to a federation and wait for it, across restarts of the server."""

import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ttpfl.errors import FederationError
from ttpfl.flower import control
from ttpfl.flower.folder import Federation
from ttpfl.flower.run_spec import RunSpec, read_outcome
from ttpfl.util.locks import run_died

log = logging.getLogger("ttpfl")

FUTILE = 3  # runs in a row that were lost before they finished a round: the cause is permanent
POLL = 1.0
QUERY_EVERY = 30.0  # seconds between queries to the superlink
UNREACHABLE = 600.0  # seconds that a superlink may be down
STOPPED = "finished:stopped"  # Flower's status of a run that was stopped by a command
Response = TypeVar("Response")


def carry_out(federation: Federation, spec: RunSpec, watch: Callable[[], None] = lambda: None) -> None:
    """Run the spec to its end.

    Flower's runs do not survive a restart of the superlink, but checkpoints do: a lost run is restarted, and
    resumes after its last finished round. That may happen any number of times, as long as rounds are finished
    in between. An interrupt (Ctrl-C) stops the run.

    Args:
        federation: The federation.
        spec: What to run.
        watch: Called repeatedly while waiting.
    """
    path, lost = spec.write(), 0
    futile, furthest = 0, _finished_rounds(spec)
    while futile < FUTILE:
        token = secrets.token_hex(8)
        run = _retried(partial(_start, federation, path, token), first=not lost)
        log.info("run %s started", run)
        try:
            if lost:
                # Flower notices late that a server app is gone; sites may wait for the rest of a message.
                _stop(federation, lost)
            outcome = _wait(federation, spec, run, token, watch)
        except KeyboardInterrupt:
            _stop(federation, run)
            raise
        if outcome is not None:
            if outcome["failure"]:
                raise FederationError(f"the run failed at the server: {outcome['failure']}")
            return
        if _status(federation, run) == STOPPED:
            raise FederationError(f"run {run} was stopped at the server: continue it with --resume")
        log.warning("run %s was lost: resuming from its last checkpoint", run)
        lost, finished = run, _finished_rounds(spec)
        # Compared with all previous runs: repeating rounds that had no checkpoint is not progress.
        futile, furthest = (0, finished) if finished > furthest else (futile + 1, furthest)
    raise FederationError(
        f"{FUTILE} runs in a row were lost before they finished a round, the last after {furthest} rounds: "
        "see the superlink's log for the reason (such as a full disk), fix it, and resume"
    )


def _finished_rounds(spec: RunSpec) -> int:
    history = Path(spec.out) / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0


def _start(federation: Federation, path: Path, token: str) -> int:
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(control.start_run, federation, path, token)
        try:
            return started.result()
        except KeyboardInterrupt:
            # The superlink may have accepted the run already, which can only be stopped by its number.
            with suppress(FederationError):
                _stop(federation, started.result())
            raise


def _wait(
    federation: Federation, spec: RunSpec, run: int, token: str, watch: Callable[[], None]
) -> dict[str, Any] | None:
    """How the run ended; None if it was lost."""
    queried = time.monotonic()
    while (outcome := read_outcome(spec.out, token)) is None:
        watch()
        time.sleep(POLL)
        if run_died(Path(spec.out), token):
            return read_outcome(spec.out, token)
        if time.monotonic() - queried > QUERY_EVERY:
            status = _status(federation, run)
            if not status or status.startswith("finished"):
                return read_outcome(spec.out, token)
            queried = time.monotonic()
    return outcome


def _stop(federation: Federation, run: int) -> None:
    try:
        control.stop_run(federation, run)
    except FederationError as error:  # it may have ended already
        log.info("run %s: %s", run, error)


def _status(federation: Federation, run: int) -> str:
    return _retried(lambda: control.run_status(federation, run))


def _retried(request: Callable[[], Response], first: bool = False) -> Response:
    """The response of a superlink that may be down for a while; a first request is not retried."""
    end = time.monotonic() + (0 if first else UNREACHABLE)
    while True:
        try:
            return request()
        except FederationError as error:
            if time.monotonic() > end:
                raise
            log.info("waiting for the superlink: %s", error)
            time.sleep(2)
