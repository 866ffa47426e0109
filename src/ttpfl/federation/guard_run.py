"""The two rounds after rates are learned, in which source clients teach the guard what harm looks like."""

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import torch
from torch import Tensor

from ttpfl.core.guard import Guard
from ttpfl.core.privacy_record import digest
from ttpfl.core.rates import Rates
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.guard_vector import EXAMINE, TEACH, GuardVector
from ttpfl.federation.common.jobs import Engine, Job
from ttpfl.federation.common.rate_vector import packed
from ttpfl.federation.server.guard_fit import fitted, guard_of
from ttpfl.util.threads import single_thread

log = logging.getLogger("ttpfl")

FEWEST = 4
"""Source clients: fewer are too few to learn from some and to examine the others."""
NO_GUARD = "the rates get no guard: only %d source clients took part, and at least %d are needed"


def layout_of(rates: Rates) -> GuardVector:
    """The layout of the vectors for these rates."""
    return GuardVector(len(packed(rates)), len(rates.modules))


def learned_guard(engine: Engine, rates: Rates, pool: ClientPool, clients: Sequence[int]) -> Guard | None:
    """Learn a guard for rates; None if too few clients take part. Closes the engine."""
    layout, vector = layout_of(rates), packed(rates)

    def ask(number: int, clients: Sequence[int], message: Tensor) -> dict[int, Tensor]:
        jobs = [Job(client, pool.name(client), number, guard=True) for client in clients]
        replies = {}
        with single_thread():
            for result in engine.run(jobs, message):
                failure = result.failure
                if failure is None:
                    failure = layout.fault(number, result.vector, result.report["samples"])
                if failure is None:
                    replies[result.job.client] = result.vector.to(torch.float64, copy=True)
                else:
                    log.warning("guard: client %r is left out: %s", result.job.name, failure)
        return replies

    with closing(engine):
        taught = ask(TEACH, clients, layout.task(vector, []))
        if len(taught) < FEWEST:
            log.warning(NO_GUARD, len(taught), FEWEST)
            return None
        folds, coefficients = fitted(taught, layout)
        examined = ask(EXAMINE, sorted(taught), layout.task(vector, folds))
    if len(examined) < FEWEST:
        log.warning(NO_GUARD, len(examined), FEWEST)
        return None
    names = [spec.name for spec in rates.modules]
    guard = guard_of(names, taught, examined, layout, coefficients)
    return replace(guard, values=digest(rates.values))
