"""The one loop of rate learning, behind `federation.learn` and `ttpfl.learn_rates`."""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from ttpfl._version import __version__
from ttpfl.core.direction import DirectionCache, Objective, entropy
from ttpfl.core.learning import Loss, cross_entropy
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.network import model_hash, weights_hash
from ttpfl.core.outputs import Readout
from ttpfl.core.privacy_record import Account
from ttpfl.core.rates import Mode, Only, Rates
from ttpfl.core.rates_check import Candidate, Verdict, returnable, verdict
from ttpfl.core.twin import Twin
from ttpfl.errors import FederationError, RatesWarning
from ttpfl.federation.checkpoints.callbacks import Callback, Keeping, RunInfo
from ttpfl.federation.checkpoints.identity import common
from ttpfl.federation.common.client_pool import ClientPool, Clients
from ttpfl.federation.common.jobs import MakeEngine
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.common.state_vector import layout_of
from ttpfl.federation.engine.session import Judge, Session
from ttpfl.federation.privacy.composition import Spending
from ttpfl.federation.privacy.mechanism import kept_key
from ttpfl.federation.server.rate_average import check_cohort
from ttpfl.federation.settings import LearnSettings
from ttpfl.federation.work.rate_work import RatesServer, RatesWork
from ttpfl.util.parallel import cores

log = logging.getLogger("ttpfl")

NO_BOUND = (
    "no privacy bound (%s): epsilon is infinite. For a bound begin with zero rates, or with rates that have "
    "one, and set noise above 0"
)
_SAID_ELSEWHERE = ("rounds", "workers", "only")  # by the result itself, or of no influence


class Learned(NamedTuple):
    """Rates, and how they came about."""

    rates: Rates
    history: list[Record]


@dataclass(frozen=True)
class RateRun:
    """A run of rate learning before it begins. `learn` and `ttpfl.learn_rates` are its two faces."""

    model: nn.Module
    clients: Clients
    settings: LearnSettings
    rates: Rates | None = None
    objective: Objective = entropy
    loss: Loss = cross_entropy
    logits: Readout | None = None
    engine: MakeEngine | None = None
    noise_key: bytes | None = None
    cache: DirectionCache | None = None
    """Keeps directions between rounds; if None, a new one of the size in the settings."""
    strict: bool = False
    """Whether a client's failure ends the run, rather than leaving the client out."""

    def __call__(
        self,
        run_dir: str | PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        evaluate: Callable[[Rates], Mapping[str, float]] | None = None,
    ) -> Learned:
        """From the first round, or the newest checkpoint, to the rates."""
        check = self.settings.check and self._compares
        session = self._session(run_dir)
        # Whoever evaluates rates during the run is not told which round they are of.
        judge = None if evaluate is None else lambda vector: evaluate(self._result(Candidate(0, vector)))
        callbacks = [Keeping(), *callbacks] if check else callbacks
        finish = self._verdict if check else None
        state, outcome = session.run(self.begin.values, run_dir, resume, callbacks, judge, finish)
        if outcome is None:
            learned = self._result(self._last(state))
        else:
            found, asked = outcome
            if found.warning is not None:  # shown at the caller of `learn` or `learn_rates`
                warnings.warn(found.warning, RatesWarning, stacklevel=3)
            learned = self._result(found.chosen, found.recorded(asked))
        if run_dir is not None:
            learned.save(Path(run_dir) / "rates.safetensors")
        return Learned(learned, state.history)

    @cached_property
    def begin(self) -> Rates:
        """The rates to start from."""
        return first_rates(self.model, self.settings.only, self.rates)

    @cached_property
    def _roster(self) -> ClientPool:
        return ClientPool(self.clients)

    @cached_property
    def _spending(self) -> Spending:
        return Spending(self.begin.current_account(), self.settings, self._roster)

    @property
    def _compares(self) -> bool:
        """Whether clients report losses without adaptation, too.

        Not over real sites, which are asked for rates alone, nor with privacy: losses have no noise.
        """
        return self.engine is None and self.settings.privacy == "none"

    def _session(self, run_dir: str | PathLike[str] | None) -> Session:
        settings, begin, client_pool = self.settings, self.begin, self._roster
        cohort = client_pool.cohort(settings.cohort)
        check_cohort(settings.average, settings.trim, cohort)
        if settings.privacy != "none" and self._spending.no_bound:
            log.warning(NO_BOUND, self._spending.no_bound)
        numbers, key = layout_of(self.model).length, partial(self._server_key, run_dir)
        return Session(
            RunInfo("learn", settings.rounds, len(client_pool), cohort, numbers, len(begin.values)),
            settings,
            client_pool,
            RatesServer(begin, settings, self._spending, key),
            partial(self._work, cohort),
            sticky=True,
            identity=self._identity,
            make_engine=self.engine,
            strict=self.strict,
        )

    def _work(self, cohort: int) -> RatesWork:
        settings, begin, client_pool, cache = self.settings, self.begin, self._roster, self.cache
        if cache is None:
            processes = min(cohort, cores() if settings.workers is None else settings.workers)
            cache = DirectionCache(settings.direction_cache // max(1, processes), keep="first")
        twin = Twin(self.model, begin.modules, readout=self.logits)
        return RatesWork(
            twin,
            begin,
            client_pool,
            settings,
            cache,
            self.objective,
            self.loss,
            self.noise_key,
            self._compares,
        )

    def _server_key(self, run_dir: str | PathLike[str] | None) -> bytes:
        if self.settings.privacy != "central":
            return b""
        kept = None if run_dir is None else Path(run_dir)
        return kept_key(kept) if self.noise_key is None else self.noise_key

    def _identity(self) -> dict[str, Any]:
        begin, account = self.begin, self.begin.current_account()
        # A run is resumed with the account that it began with; zeros have an empty one.
        counts = self.settings.privacy != "none" and account != Account()
        return {
            "kind": "learn",
            "model": weights_hash(self.model),
            "network": model_hash(self.model),  # the weights and what else it computes with
            "begin": begin.values.tolist(),
            "granularity": begin.granularity,
            "only": begin.only,
            **({"account": account.as_json()} if counts else {}),
            **common(self._roster, objective=self.objective, loss=self.loss, logits=self.logits),
        }

    def _result(self, chosen: Candidate, checked: Record | None = None) -> Rates:
        settings, (rounds, values), weights = self.settings, chosen, weights_hash(self.model)
        said: Record = {"rounds": rounds, "clients": len(self._roster), "library": __version__}
        said |= {name: value for name, value in asdict(settings).items() if name not in _SAID_ELSEWHERE}
        account = Account(no_bound="taken from a run that had not ended")
        if rounds or checked is not None:
            account = self._spending.account(rounds, values)
        if rounds and settings.privacy != "none":
            # Without what a server that died asked for again: see docs/privacy.md.
            said["spent"] = self._spending.record(rounds)
        if checked is not None:
            said["checked"] = checked
        mode = cast(Mode, settings.mode)
        return self.begin.with_values(values, mode=mode, learned=said, weights_hash=weights, account=account)

    def _last(self, state: RunState) -> Candidate:
        """What the run ended with; if it was stopped early, that is its best round."""
        if self.settings.patience is None:
            return Candidate(state.round, state.vector)
        return Candidate(state.result_round, state.result)

    def _verdict(self, state: RunState, judge: Judge) -> tuple[Verdict, int]:
        """The last rates, or earlier ones, against no adaptation; and how many clients were asked."""
        answered: list[int] = []

        def total(values: Tensor) -> MetricSums:
            tally, reports = MetricSums(), judge(values)
            answered.append(len(reports))
            for report in reports:
                tally.join(**report["adapted"])
            return tally

        others = returnable(self.begin.values, state.kept)
        if state.best is not None:  # also of checkpoints by earlier versions, which kept nothing else
            others.append(Candidate(state.best_round, state.best))
        return verdict(self._last(state), others, total), min(answered)


def first_rates(model: nn.Module, only: str | None, rates: Rates | None) -> Rates:
    """The rates to begin with, which must have rates for what `only` asks."""
    if rates is None:
        return Rates.zeros(model, only=None if only in (None, "all") else cast(Only, only))
    if only not in (None, rates.only or "all"):
        raise FederationError(
            f"only is {only!r}, but the rates to begin with are for {rates.only or 'all'!r}: "
            "leave out one of the two"
        )
    rates.checked().check_fits(model)
    return rates
