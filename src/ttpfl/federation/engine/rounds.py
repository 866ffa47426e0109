"""The loop of a run: draw a cohort, let its clients work, take their answers together, again."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ttpfl.core.inputs import all_finite
from ttpfl.core.learning import draw_cohort
from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.common.client_pool import ClientPool, Part
from ttpfl.federation.common.jobs import ClientResult, Engine, Job
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.common.traffic import Traffic
from ttpfl.federation.engine.interruption import Interrupted, Wish, interruptible
from ttpfl.federation.settings import RunSettings
from ttpfl.util.threads import single_thread

log = logging.getLogger("ttpfl")

ABANDONED_IN_A_ROW = 3  # then something is wrong that more rounds will not mend


class Server(Protocol):
    """Makes the next vector from the answers of a round."""

    part: Part
    """What clients work on."""

    def begin(self, state: RunState) -> None:
        """A new round."""

    def start(self, state: RunState, client: int) -> Tensor | None:
        """What this client alone gets."""

    def add(self, answer: ClientResult) -> None:
        """One more good answer."""

    def enough(self) -> bool:
        """Whether a next vector can be made of the good answers, of which there is at least one."""

    def finish(self) -> Tensor:
        """The next vector."""

    def summary(self) -> Record:
        """The round in numbers."""


def run_rounds(
    state: RunState,
    settings: RunSettings,
    info: RunInfo,
    client_pool: ClientPool,
    server: Server,
    engine: Engine,
    traffic: Traffic,
    callbacks: Sequence[Callback],
) -> None:
    """Go on with `state` until all rounds are done, a callback stops it, or somebody asks to."""

    def cohort_of(number: int) -> list[int]:
        return draw_cohort(range(len(client_pool)), info.cohort, settings.seed, number)

    for number in range(state.round):
        traffic.count(cohort_of(number))
    for callback in callbacks:
        callback.on_start(info, state)
    with interruptible() as wish:
        while state.round < settings.rounds and not state.stopped:
            cohort = cohort_of(state.round)
            local = dict(state.local)  # belongs to the vector: both are changed, or neither
            try:
                # The cores belong to the workers; threads that wait for each other here would take theirs.
                with single_thread():
                    vector, record = _one_round(state, settings, cohort, client_pool, server, engine, wish)
            except KeyboardInterrupt:  # also the second Ctrl-C, which does not wait for clients
                state.local = local
                for callback in callbacks:
                    callback.on_interrupt(state)
                raise Interrupted from None
            if record["abandoned"]:
                state.local = local
            record["bytes"] = traffic.count(cohort)
            record["bytes_per_client"] = record["bytes"] / len(cohort)
            record["bytes_total"] = traffic.total
            state.vector, state.round = vector, state.round + 1
            state.history.append(record)
            for callback in callbacks:
                callback.on_round(state, record)
            _check_not_stuck(state.history)
    for callback in callbacks:
        callback.on_end(state)


def _one_round(
    state: RunState,
    settings: RunSettings,
    cohort: list[int],
    client_pool: ClientPool,
    server: Server,
    engine: Engine,
    wish: Wish,
) -> tuple[Tensor, Record]:
    if wish.asked:  # while callbacks were busy: nobody needs to begin
        raise Interrupted
    # The longest first, so that nobody waits for a long one at the end. The order is that of the sums, too.
    order = sorted(cohort, key=lambda client: (-client_pool.size(client, server.part), client))
    jobs = [Job(c, client_pool.name(c), state.round, server.start(state, c)) for c in order]
    failures: list[tuple[str, str]] = []
    server.begin(state)
    for answer in engine.run(jobs, state.vector):
        if wish.asked:
            raise Interrupted
        failure = answer.failure or _taken(server, answer, state.vector)
        if failure is not None:
            failures.append((answer.job.name, failure))
    good = len(jobs) - len(failures)
    _warn_of(state.round, failures, good)
    if not good and state.round == 0:  # nothing was ever right; later it may be a failure that passes
        name, failure = failures[0]
        raise FederationError(f"all {len(jobs)} clients of round {state.round} failed; {name!r}: {failure}")
    record: Record = {
        "round": state.round,
        "clients": len(jobs),
        "failed": sorted(name for name, _ in failures),
    }
    record["abandoned"] = not good or good < settings.min_reply_fraction * len(jobs) or not server.enough()
    vector = state.vector if record["abandoned"] else server.finish()
    if not _sound(vector, state.vector):
        log.warning("round %d: what the server made of the answers is not finite", state.round)
        vector, record["abandoned"] = state.vector, True
    return vector, record | server.summary()


def _warn_of(number: int, failures: Sequence[tuple[str, str]], good: int) -> None:
    """A line for each client that failed; one for all, if all clients failed for the same reason."""
    if not good and len({_kind(failure) for _, failure in failures}) == 1:
        if number:  # an error ends the first round, and says the same
            name, failure = failures[0]
            log.warning("round %d: all %d clients failed alike; %r: %s", number, len(failures), name, failure)
        return
    for name, failure in failures:
        log.warning("round %d: client %r is left out: %s", number, name, failure)


def _kind(failure: str) -> str:
    """The reason without what differs from client to client: names in quotes, and numbers."""
    return re.sub(r"'[^']*'|[-+]?[\d.]+(?:e[-+]?\d+)?|\b(?:nan|inf)\b", "", failure)


def _taken(server: Server, answer: ClientResult, current: Tensor) -> str | None:
    """Give a good answer to the server; else what is wrong with it."""
    if not _sound(answer.vector, current):
        return "its answer is not finite"
    if not _finite_figures(answer.report):
        return "its figures are not finite"
    try:
        server.add(answer)
    except (ArithmeticError, ValueError) as error:
        return f"nothing can be computed with its figures: {error}"
    return None


def _finite_figures(report: Any) -> bool:
    """All numbers in it; what else there is was checked by whoever made or received it."""
    if isinstance(report, Mapping):
        return all(map(_finite_figures, report.values()))
    return not isinstance(report, float) or math.isfinite(report)


def _sound(vector: Tensor, current: Tensor) -> bool:
    """Whether all is finite, but for what is meant not to be: some models keep a mask with -inf."""
    if all_finite(vector):
        return True
    return bool(torch.where(torch.isfinite(current), torch.isfinite(vector), vector == current).all())


def _check_not_stuck(history: list[dict[str, Any]]) -> None:
    last = history[-ABANDONED_IN_A_ROW:]
    if len(last) == ABANDONED_IN_A_ROW and all(record["abandoned"] for record in last):
        raise FederationError(
            f"{ABANDONED_IN_A_ROW} rounds in a row were abandoned since too few clients answered well, "
            f"the last time without {', '.join(last[-1]['failed'])}: see the warnings for the reasons"
        )
