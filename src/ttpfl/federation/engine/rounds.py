"""The loop of a run: draw a cohort, run its clients, aggregate their results, repeat."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.inputs import all_finite
from ttpfl.core.learning import draw_cohort
from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.jobs import ClientResult, Engine, Job, Server
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.common.traffic import Traffic
from ttpfl.federation.engine.interruption import Interrupted, interruptible
from ttpfl.federation.settings import RunSettings
from ttpfl.util.threads import single_thread

log = logging.getLogger("ttpfl")

ABANDONED_IN_A_ROW = 3  # after these, more rounds are unlikely to help


def run_rounds(
    state: RunState,
    settings: RunSettings,
    info: RunInfo,
    pool: ClientPool,
    server: Server,
    engine: Engine,
    callbacks: Sequence[Callback],
) -> None:
    """Advance `state` until all rounds are done, a callback ends the run, or the user stops it."""

    def cohort_of(number: int) -> list[int]:
        draw = 0 if server.same_cohort else number
        return draw_cohort(range(len(pool)), info.cohort, settings.seed, draw)

    size = state.vector.element_size()
    traffic = Traffic(info.model_numbers * size, info.vector_numbers * size, once=info.kind == "learn")
    for number in range(state.round):
        traffic.count(cohort_of(number))
    for callback in callbacks:
        callback.on_start(info, state)
    with interruptible() as stop:
        while state.round < settings.rounds and not state.stopped:
            cohort = cohort_of(state.round)
            local, memory = dict(state.local), state.memory  # change together with the vector, or not at all
            try:
                # The cores belong to the workers; threads waiting here would slow them down.
                with single_thread():
                    vector, record = _run_round(state, settings, cohort, pool, server, engine, stop)
            except KeyboardInterrupt:  # also the second Ctrl-C, which does not wait for clients
                state.local, state.memory = local, memory
                for callback in callbacks:
                    callback.on_interrupt(state)
                raise Interrupted from None
            if record["abandoned"]:
                state.local, state.memory, state.stopped = local, memory, False
                vector = server.retry(state)
            record["bytes"] = traffic.count(cohort)
            record["bytes_per_client"] = record["bytes"] / len(cohort)
            record["bytes_total"] = traffic.total
            state.vector, state.round = vector, state.round + 1
            state.history.append(record)
            for callback in callbacks:
                callback.on_round(state, record)
            _check_progress(state.history)
    for callback in callbacks:
        callback.on_end(state)


def _run_round(
    state: RunState,
    settings: RunSettings,
    cohort: list[int],
    pool: ClientPool,
    server: Server,
    engine: Engine,
    stop: Event,
) -> tuple[Tensor, Record]:
    if stop.is_set():  # during the callbacks
        raise Interrupted
    # Largest clients first, so that workers finish together. Results are summed in this order.
    order = sorted(cohort, key=lambda client: (-pool.size(client, server.part), client))
    jobs = [Job(c, pool.name(c), state.round, server.start(state, c)) for c in order]
    failures: list[tuple[str, str]] = []
    server.begin(state)
    for result in engine.run(jobs, state.vector):
        if stop.is_set():
            raise Interrupted
        failure = result.failure or _add(server, result, state.vector)
        if failure is not None:
            failures.append((result.job.name, failure))
    valid = len(jobs) - len(failures)
    _warn_of(state.round, failures, valid)
    if not valid and state.round == 0:  # a setup error; in later rounds, a failure may be temporary
        name, failure = failures[0]
        raise FederationError(f"all {len(jobs)} clients of round {state.round} failed; {name!r}: {failure}")
    failed = sorted(name for name, _ in failures)
    record: Record = {"round": state.round, "clients": len(jobs), "failed": failed}
    record["abandoned"] = not valid or valid < settings.min_reply_fraction * len(jobs) or not server.enough()
    vector = state.vector if record["abandoned"] else server.finish()
    if not _is_finite(vector, state.vector):
        log.warning("round %d: the aggregate of the clients' results is not finite", state.round)
        vector, record["abandoned"] = state.vector, True
    return vector, record | server.summary()


def _warn_of(number: int, failures: Sequence[tuple[str, str]], valid: int) -> None:
    """Log one line per failed client, or a single one if all clients failed for the same reason."""
    if not valid and len({_reason(failure) for _, failure in failures}) == 1:
        if number:  # round 0 ends with an error that says the same
            message = "round %d: all %d clients failed in the same way; %r: %s"
            log.warning(message, number, len(failures), *failures[0])
        return
    for name, failure in failures:
        log.warning("round %d: client %r is left out: %s", number, name, failure)


def _reason(failure: str) -> str:
    """The text without what differs between clients: quoted names and numbers."""
    return re.sub(r"'[^']*'|[-+]?[\d.]+(?:e[-+]?\d+)?|\b(?:nan|inf)\b", "", failure)


def _add(server: Server, result: ClientResult, current: Tensor) -> str | None:
    """Pass a result to the server; return what is wrong with it, if anything."""
    if not _is_finite(result.vector, current):
        return "its result is not finite"
    if not _has_finite_metrics(result.report):
        return "its metrics are not finite"
    try:
        server.add(result)
    except (ArithmeticError, ValueError) as error:
        return f"its metrics cannot be used: {error}"
    return None


def _has_finite_metrics(report: Any) -> bool:
    if isinstance(report, Mapping):
        return all(map(_has_finite_metrics, report.values()))
    return not isinstance(report, float) or math.isfinite(report)


def _is_finite(vector: Tensor, current: Tensor) -> bool:
    """Whether all values are finite, except those that already were not, such as a mask with -inf."""
    if all_finite(vector):
        return True
    return bool(torch.where(torch.isfinite(current), torch.isfinite(vector), vector == current).all())


def _check_progress(history: list[Record]) -> None:
    last = history[-ABANDONED_IN_A_ROW:]
    if len(last) == ABANDONED_IN_A_ROW and all(record["abandoned"] for record in last):
        raise FederationError(
            f"{ABANDONED_IN_A_ROW} rounds in a row were abandoned because too few clients returned a valid "
            f"result; failed in the last one: {', '.join(last[-1]['failed'])}. See the warnings for reasons"
        )
