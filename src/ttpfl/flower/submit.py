"""Giving an order to a federation and waiting for it, over restarts of the server."""

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

FUTILE = 3  # runs in a row that were lost before they finished a round: something is wrong that stays
POLL = 1.0
LOOK_EVERY = 30.0  # seconds from one question to the superlink to the next
UNREACHABLE = 600.0  # seconds that a superlink may be away
STOPPED = "finished:stopped"  # Flower's word for a run that somebody ended
Said = TypeVar("Said")


def carry_out(federation: Federation, spec: RunSpec, watch: Callable[[], None] = lambda: None) -> None:
    """Run the spec to its end.

    Flower's runs do not survive a restart of the superlink, but the checkpoints do: a run that was lost is
    begun anew, and goes on after the last round that was finished. That may happen any number of times, as
    long as rounds are finished in between. Whoever interrupts this stops the run.

    Args:
        federation: where.
        spec: what to run.
        watch: called again and again meanwhile.
    """
    path, lost = spec.write(), 0
    futile, furthest = 0, _finished_rounds(spec)
    while futile < FUTILE:
        token = secrets.token_hex(8)
        begin = partial(_begin, federation, path, token)
        run = _patiently(begin, first=not lost)
        log.info("run %s was begun", run)
        try:
            if lost:
                # Flower misses its server app late, and sites may wait for the rest of a message of it.
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
            raise FederationError(f"run {run} was stopped at the server: --resume goes on with it")
        log.warning("run %s was lost: going on after its last checkpoint", run)
        lost, finished = run, _finished_rounds(spec)
        # Compared with all runs before: what had no checkpoint yet is done again, which is no progress.
        futile, furthest = (0, finished) if finished > furthest else (futile + 1, furthest)
    raise FederationError(
        f"{FUTILE} runs in a row were lost before they finished a round, the last after {furthest} rounds: "
        "the superlink's log says why (a full disk there, say); mend that, and resume"
    )


def _finished_rounds(spec: RunSpec) -> int:
    history = Path(spec.out) / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0


def _begin(federation: Federation, path: Path, token: str) -> int:
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(control.start_run, federation, path, token)
        try:
            return begun.result()
        except KeyboardInterrupt:
            # The superlink may have taken the run already: without its number nobody could stop it.
            with suppress(FederationError):
                _stop(federation, begun.result())
            raise


def _wait(
    federation: Federation, spec: RunSpec, run: int, token: str, watch: Callable[[], None]
) -> dict[str, Any] | None:
    """How the run ended; None if it was lost."""
    looked = time.monotonic()
    while (outcome := read_outcome(spec.out, token)) is None:
        watch()
        time.sleep(POLL)
        if run_died(Path(spec.out), token):
            return read_outcome(spec.out, token)
        if time.monotonic() - looked > LOOK_EVERY:
            status = _status(federation, run)
            if not status or status.startswith("finished"):
                return read_outcome(spec.out, token)
            looked = time.monotonic()
    return outcome


def _stop(federation: Federation, run: int) -> None:
    try:
        control.stop_run(federation, run)
    except FederationError as error:  # it may have ended by itself
        log.info("run %s: %s", run, error)


def _status(federation: Federation, run: int) -> str:
    return _patiently(lambda: control.run_status(federation, run))


def _patiently(ask: Callable[[], Said], first: bool = False) -> Said:
    """The answer of a superlink that may be away for a while; a first question is not repeated."""
    end = time.monotonic() + (0 if first else UNREACHABLE)
    while True:
        try:
            return ask()
        except FederationError as error:
            if time.monotonic() > end:
                raise
            log.info("waiting for the superlink: %s", error)
            time.sleep(2)
