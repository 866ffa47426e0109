"""The run behind `ttpfl.federation.learn` and `ttpfl.learn_rates`."""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ttpfl._version import __version__
from ttpfl.core.direction import Objective, entropy
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.guard import Guard
from ttpfl.core.learning import Loss, cross_entropy, draw_cohort
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.network import model_hash, weights_hash
from ttpfl.core.outputs import Readout
from ttpfl.core.privacy_record import Account
from ttpfl.core.rates import Rates
from ttpfl.core.rates_check import Candidate, Verdict, returnable, verdict
from ttpfl.core.selection import no_last_layer
from ttpfl.core.slopes import class_count, head_name
from ttpfl.core.twin import Twin
from ttpfl.errors import FederationError, RatesWarning
from ttpfl.federation.checkpoints.callbacks import Callback, Keeping, RunInfo
from ttpfl.federation.checkpoints.identity import common
from ttpfl.federation.clients.guard_work import GuardWork
from ttpfl.federation.clients.rate_work import RatesWork, batches_of, validation_data
from ttpfl.federation.common.client_pool import ClientPool, Clients
from ttpfl.federation.common.jobs import MakeEngine
from ttpfl.federation.common.rate_vector import packed, unpacked
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.common.state_vector import layout_of
from ttpfl.federation.engine.session import Session, Validate
from ttpfl.federation.first_rates import first_rates
from ttpfl.federation.guard_run import layout_of as guard_layout
from ttpfl.federation.guard_run import learned_guard
from ttpfl.federation.privacy.composition import Spending
from ttpfl.federation.privacy.mechanism import kept_key
from ttpfl.federation.server.rate_average import check_cohort
from ttpfl.federation.server.rate_search import ONE_CLIENT, REASONS, expected_gain
from ttpfl.federation.server.rate_servers import RatesServer, SearchServer, search_of
from ttpfl.federation.server.robust import Average
from ttpfl.federation.settings import LearnSettings
from ttpfl.util.parallel import cores
from ttpfl.util.printable import counted

log = logging.getLogger("ttpfl")

NO_BOUND = (
    "no privacy bound (%s): epsilon is infinite. For a bound, start from zero rates or from rates that have "
    "one, and set noise above 0"
)
NOT_SHOWN = (
    "rates of zero are returned: %d source clients do not show that adaptation helps others. More clients, "
    "or more labelled samples of each, can show smaller gains; check=False returns the rates with the lowest "
    "loss in any case"
)
_NOT_RECORDED = ("rounds", "workers", "only", "guard")  # recorded elsewhere, or without influence


class Learned(NamedTuple):
    """Rates, and the history of their learning."""

    rates: Rates
    history: list[Record]


@dataclass(frozen=True)
class RateRun:
    """A run of rate learning; calling it starts or resumes the run."""

    model: nn.Module
    clients: Clients
    settings: LearnSettings
    rates: Rates | None = None
    objective: Objective = entropy
    loss: Loss = cross_entropy
    logits: Readout | None = None
    unseen: Sequence[nn.Module] = ()
    """Models in place of `model`: client i adapts number i modulo their count, which never saw its data."""
    engine: MakeEngine | None = None
    noise_key: bytes | None = None
    cache: DirectionCache | None = None
    """Keeps directions between rounds; a new one of the size in the settings if None."""
    strict: bool = False
    """Whether a client's failure ends the run instead of leaving the client out."""

    def __call__(
        self,
        run_dir: str | PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        evaluate: Callable[[Rates], Mapping[str, float]] | None = None,
    ) -> Learned:
        """Run from the first round, or resume from the newest checkpoint, and return the rates."""
        if self.unseen and self.engine is not None:
            raise FederationError("cross-fitting (unseen=) is not possible over real sites yet")
        for one in self.unseen:
            self.initial.check_fits(one)
        search, session = self.settings.searches, self._session(run_dir)
        check = self.settings.check and self._compares and not search
        # The round of rates that are evaluated during the run is not recorded in them.
        target = None if evaluate is None else lambda vector: evaluate(self._result(Candidate(0, vector)))
        callbacks = [Keeping(), *callbacks] if check else callbacks
        finish = self._verdict if check else None
        values = self.initial.values
        first = packed(self.initial.with_values(torch.zeros_like(values))) if search else values
        state, outcome = session.run(first, run_dir, resume, callbacks, target, finish)
        if outcome is not None:
            decision, clients = outcome
            if decision.warning is not None:  # shown at the caller of `learn` or `learn_rates`
                warnings.warn(decision.warning, RatesWarning, stacklevel=3)
            rates = self._result(decision.chosen, decision.recorded(clients))
        elif search:
            rates = self._found(state)
        else:
            rates = self._result(self._last(state))
        if self.settings.guard and bool(rates.values.any()):
            rates = replace(rates, guard=self._guard(session, rates))
        if run_dir is not None:
            rates.save(Path(run_dir) / "rates.safetensors")
        return Learned(rates, state.history)

    @cached_property
    def initial(self) -> Rates:
        """The rates to start from."""
        settings, needs_head = self.settings, self.settings.selection in ("head", "forward")
        seen = self._seen() if self.rates is None and (settings.learns_prior or needs_head) else None
        classes, head = seen or (None, None)
        if seen is not None and needs_head and head is None:
            raise FederationError(f"no linear layer returned the logits. {no_last_layer(settings.selection)}")
        return first_rates(self.model, settings, self.rates, classes, head)

    def _seen(self) -> tuple[int | None, str | None] | None:
        """Number of classes and name of the last layer, from the first client that can be read."""
        twin = Twin(self.model, (), readout=self.logits)
        for client in range(len(self._pool)):
            try:
                data = validation_data(self._pool, client, self.settings)
                with batches_of(client, data, self.settings) as batches:
                    batch = next(iter(batches))
                    return class_count(twin, batch), head_name(twin, batch)
            except Exception as error:  # the run itself reports it, or leaves the client out
                log.debug("client %d cannot be read: %s", client, error)
        return None

    @cached_property
    def _pool(self) -> ClientPool:
        return ClientPool(self.clients)

    @cached_property
    def _spending(self) -> Spending:
        return Spending(self.initial.current_account(), self.settings, self._pool)

    @property
    def _compares(self) -> bool:
        """Whether clients also report their losses without adaptation.

        Real sites only return rates. With privacy, losses are not reported, because they have no noise.
        """
        return self.engine is None and self.settings.privacy == "none"

    def _session(self, run_dir: str | PathLike[str] | None) -> Session:
        settings, initial, pool = self.settings, self.initial, self._pool
        cohort = pool.cohort(settings.cohort)
        check_cohort(settings.average, settings.trim, cohort)
        if settings.privacy != "none" and self._spending.no_bound:
            log.warning(NO_BOUND, self._spending.no_bound)
        numbers, key = layout_of(self.model).length, partial(self._server_key, run_dir)
        length = len(packed(initial)) if settings.searches else len(initial.values)
        return Session(
            RunInfo("learn", settings.rounds, len(pool), cohort, numbers, length),
            settings,
            pool,
            SearchServer(initial, settings, cohort)
            if settings.searches
            else RatesServer(initial, settings, self._spending, key),
            partial(self._work, cohort),
            sticky=True,
            identity=self._identity,
            make_engine=self.engine,
            strict=self.strict,
        )

    def _work(self, cohort: int) -> RatesWork:
        settings, initial, cache = self.settings, self.initial, self.cache
        if cache is None:
            processes = min(cohort, cores() if settings.workers is None else settings.workers)
            cache = DirectionCache(settings.direction_cache // max(1, processes), keep="first")
        about = (self._twins(initial), initial, self._pool, settings, cache, self.objective, self.loss)
        return RatesWork(*about, self.noise_key, self._compares)

    def _twins(self, rates: Rates) -> list[Twin]:
        return [Twin(one, rates.modules, readout=self.logits) for one in self.unseen or (self.model,)]

    def _guard(self, session: Session, rates: Rates) -> Guard | None:
        """Learn a guard from the clients of the last round."""
        layout = guard_layout(rates)
        work = GuardWork(self._twins(rates), rates, self._pool, self.settings, self.objective, layout)
        engine = replace(session, make_work=lambda: work).engine(layout.length, torch.float32)
        number = 0 if self.settings.searches else self.settings.rounds - 1
        clients = draw_cohort(range(len(self._pool)), session.info.cohort, self.settings.seed, number)
        return learned_guard(engine, rates, self._pool, clients)

    def _server_key(self, run_dir: str | PathLike[str] | None) -> bytes:
        if self.settings.privacy != "central":
            return b""
        if self.noise_key is not None:
            return self.noise_key
        return kept_key(None if run_dir is None else Path(run_dir))

    def _identity(self) -> dict[str, Any]:
        initial, account = self.initial, self.initial.current_account()
        # A run must be resumed with the account it started with; that of zeros is empty.
        has_account = self.settings.privacy != "none" and account != Account()
        return {
            "kind": "learn",
            "model": weights_hash(self.model),
            "network": model_hash(self.model),  # the weights and everything else that affects its output
            "begin": initial.values.tolist(),
            "granularity": initial.granularity,
            "only": initial.only,
            **({"variance": "log"} if initial.variance == "log" else {}),
            **({"source_prior": list(initial.prior)} if initial.prior else {}),
            **({"account": account.as_json()} if has_account else {}),
            **({"unseen": [model_hash(one) for one in self.unseen]} if self.unseen else {}),
            **common(self._pool, objective=self.objective, loss=self.loss, logits=self.logits),
        }

    def _result(self, chosen: Candidate, checked: Record | None = None) -> Rates:
        settings, (rounds, vector) = self.settings, chosen
        rates = unpacked(self.initial, vector)
        values = rates.values
        learned: Record = {"rounds": rounds, "clients": len(self._pool), "library": __version__}
        learned |= {name: value for name, value in asdict(settings).items() if name not in _NOT_RECORDED}
        account = Account(no_bound="taken from a run that had not ended")
        if rounds or checked is not None:
            account = self._spending.account(rounds, values)
        if rounds and settings.privacy != "none":
            # Without the requests that a server repeats after a crash: see docs/concepts/privacy.md.
            learned["spent"] = self._spending.record(rounds)
        if checked is not None:
            learned["checked"] = checked
        fixed = {"mode": settings.mode, "weights_hash": weights_hash(self.model)}
        # A guard belongs to the rates that it was learned for.
        return rates.with_values(values, learned=learned, account=account, guard=None, **fixed)

    def _found(self, state: RunState) -> Rates:
        """The best rates of a search, with what they do at the source clients and may do at new ones."""
        if not state.memory:
            raise FederationError("no rates were learned: too few clients answered in every round")
        search, average = search_of(state), Average(self.settings.average, self.settings.trim)
        if search.reason == ONE_CLIENT and not search.result.round:
            warnings.warn(f"rates of zero are returned: {REASONS[ONE_CLIENT]}", RatesWarning, stacklevel=4)
        stopped, result = REASONS[search.reason], search.result
        stopped = stopped or f"reached the maximum of {counted(self.settings.rounds, 'round')}"
        if result.round != search.best_round:
            rates = "later rates" if result.round else "rates"
            stopped += f"; {rates} that lower the loss further are not shown to help new clients"
        if self.settings.check and not result.round and search.reason != ONE_CLIENT:
            log.warning(NOT_SHOWN, len(search.plain.clients))
        checked = {
            "clients": len(result.answers.clients),
            "round": result.round,
            "last_round": state.round - 1,
            "samples": int(search.plain.samples.sum()),
            **search.plain.figures("plain", average),
            **result.answers.figures("adapted", average),
            "expected": expected_gain(search),
            "stopped": stopped,
        }
        return self._result(Candidate(state.round, state.current), checked)

    def _last(self, state: RunState) -> Candidate:
        """The rates of the last round, or of the best one with early stopping."""
        if self.settings.patience is None:
            return Candidate(state.round, state.vector)
        return Candidate(state.result_round, state.result)

    def _verdict(self, state: RunState, validate: Validate) -> tuple[Verdict, int]:
        """Compare the last rates, and earlier ones if needed, with no adaptation; also count the clients."""
        clients: list[int] = []

        def total(values: Tensor) -> MetricSums:
            metrics, reports = MetricSums(), validate(values)
            clients.append(len(reports))
            for report in reports:
                metrics.join(**report["adapted"])
            return metrics

        earlier = returnable(self.initial.values, state.kept)
        if state.best is not None:  # checkpoints of early versions have no other candidate
            earlier.append(Candidate(state.best_round, state.best))
        return verdict(self._last(state), earlier, total), min(clients)
