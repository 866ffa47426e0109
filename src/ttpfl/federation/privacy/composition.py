"""Total privacy cost of all private runs behind some rates.

Gaussian mechanisms compose exactly: for each site, the squares of sensitivity / noise add up over the rounds
that it takes part in (Dong, Roth, Su 2022). An account's epsilon is that of the site with the largest sum.

Runs over the same sites are added up site by site. Different populations may share sites, so their largest
sums are added up, as if they belonged to one site.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.core.privacy_record import LEAST_NOISE, NO_NOISE, UNPROTECTED, Account, PrivateRun, digest
from ttpfl.core.rates import Rates
from ttpfl.federation.common.client_pool import MOST_NAMES, ClientPool
from ttpfl.federation.common.state import Record
from ttpfl.federation.privacy.accountant import SENSITIVITY, epsilon_of_mu
from ttpfl.federation.privacy.mechanism import Participation
from ttpfl.federation.settings import LearnSettings

MOST_DRAWS = 10**8
"""Clients times rounds for which cohorts are drawn again to count participations (about a second). Above it,
the busiest clients of all runs count as one."""

MOST_SQUARES = 1e12
"""Above it, epsilon is infinite: it would be about 1e11, which protects nothing and is hard to compute."""

Squares = NDArray[np.float64]
"""Sums of squares of sensitivity / noise: one number per client, or one for all."""


def epsilon_of_rates(rates: Rates, delta: float = 1e-5) -> float:
    """The epsilon of everything that sites revealed for these rates; infinite if there is no bound.

    It covers the rates alone. Their model counts as public.

    >>> from torch import nn
    >>> epsilon_of_rates(Rates.zeros(nn.Linear(3, 2)))
    0.0
    """
    account = rates.current_account()
    return math.inf if account.no_bound else _epsilon(_total(account.runs), delta)


def _epsilon(squares: float, delta: float) -> float:
    if squares > MOST_SQUARES:
        return math.inf
    return epsilon_of_mu(math.sqrt(squares), delta) if squares else 0.0


def _total(runs: Sequence[PrivateRun]) -> float:
    populations: dict[object, list[PrivateRun]] = {}
    for number, run in enumerate(runs):
        populations.setdefault((run.sites, run.clients) if run.sites else number, []).append(run)
    return math.fsum(float(_by_client(same, exact=len(same) > 1).max()) for same in populations.values())


def _by_client(runs: Sequence[PrivateRun], exact: bool) -> Squares:
    """Sums of squares of runs over the same clients; if not exact, those of the busiest client for all."""
    drawn = [run for run in runs if run.cohort < run.clients]
    exact = exact and sum(run.clients * run.rounds for run in drawn) <= MOST_DRAWS
    squares: Squares = np.zeros(1)
    for run in runs:
        times = np.array([run.participations])
        if exact and run in drawn:
            times = Participation(run.clients, run.cohort, run.seed).counts(run.rounds)
        squares = squares + _square(run) * times
    return squares


def _square(run: PrivateRun | LearnSettings) -> float:
    mu = SENSITIVITY[run.privacy] / run.noise
    return mu * mu


class Spending:
    """The privacy cost of a run from round to round, on top of `before`, the account of its initial rates."""

    def __init__(self, before: Account, settings: LearnSettings, pool: ClientPool) -> None:
        self._before, self._settings = before, settings
        self._clients, self._cohort = len(pool), pool.cohort(settings.cohort)
        self.no_bound = before.no_bound
        if settings.privacy == "none":
            self.no_bound = UNPROTECTED
        elif settings.noise < LEAST_NOISE and not self.no_bound:
            self.no_bound = NO_NOISE
        self._participation = Participation(self._clients, self._cohort, settings.seed)
        if not self.no_bound:
            self._sites = pool.names_hash() if pool.named and len(pool) <= MOST_NAMES else ""
            population = (self._sites, self._clients)
            same = [run for run in before.runs if run.sites and (run.sites, run.clients) == population]
            self._here = _by_client(same, exact=True)
            self._elsewhere = _total([run for run in before.runs if run not in same])

    def record(self, rounds: int) -> Record:
        """The cost for the site with the largest sum after `rounds` rounds of this run.

        Every round counts once. The server does not know of requests that it repeats after a crash; a site's
        account (`ttpfl.flower.policy.Budget`) counts them, too.
        """
        settings, counts = self._settings, self._participation.counts(rounds)
        record: Record = {"epsilon": None, "delta": settings.delta, "participations": int(counts.max())}
        if self.no_bound:
            return record | {"no_bound": self.no_bound}
        squares = self._elsewhere + float(np.max(self._here + _square(settings) * counts))
        epsilon = _epsilon(squares, settings.delta)
        return record | ({"no_bound": NO_NOISE} if math.isinf(epsilon) else {"epsilon": epsilon})

    def account(self, rounds: int, values: Tensor) -> Account:
        """The account of the values after `rounds` rounds."""
        if self.no_bound:
            return Account(no_bound=self.no_bound)
        settings, participations = self._settings, int(self._participation.counts(rounds).max())
        noise = (settings.privacy, float(settings.noise), float(settings.clip))
        cohorts = (self._clients, self._cohort, int(settings.seed))
        run = PrivateRun(*noise, rounds, participations, *cohorts, self._sites, digest(values))
        return Account((*self._before.runs, run), values=run.result)
