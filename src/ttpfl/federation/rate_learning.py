"""Learning rates over source clients, on all cores."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from ttpfl._version import __version__
from ttpfl.account import Account
from ttpfl.data.parallel import cores
from ttpfl.direction import DirectionCache, Objective, entropy
from ttpfl.errors import FederationError
from ttpfl.federation.callbacks import Callback, Keeping, RunInfo
from ttpfl.federation.composition import Spending
from ttpfl.federation.identity import common
from ttpfl.federation.jobs import MakeEngine
from ttpfl.federation.privacy import kept_key
from ttpfl.federation.rate_average import check_cohort
from ttpfl.federation.rate_work import RatesServer, RatesWork
from ttpfl.federation.roster import Clients, Roster
from ttpfl.federation.session import Judge, Session
from ttpfl.federation.settings import LearnSettings
from ttpfl.federation.state import Record, RunState
from ttpfl.federation.state_vector import layout_of
from ttpfl.learning import Loss, cross_entropy
from ttpfl.network import model_hash, weights_hash
from ttpfl.outputs import Readout
from ttpfl.rates import Mode, Only, Rates
from ttpfl.tally import Tally
from ttpfl.twin import Twin
from ttpfl.verdict import Candidate, Verdict, returnable, verdict, warn_of

log = logging.getLogger("ttpfl")

_SAID_ELSEWHERE = ("rounds", "workers", "only")  # by the result itself, or of no influence


class Learned(NamedTuple):
    """Rates, and how they came about."""

    rates: Rates
    history: list[Record]


def learn(
    model: nn.Module,
    clients: Clients,
    settings: LearnSettings | None = None,
    *,
    rates: Rates | None = None,
    run_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    evaluate: Callable[[Rates], Mapping[str, float]] | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
    logits: Readout | None = None,
    engine: MakeEngine | None = None,
    noise_key: bytes | None = None,
) -> Learned:
    """Learn rates for `model` on the clients' validation data: `learn_rates` with all cores, and resumable.

    Args:
        model: the global model; it is not changed.
        clients: a population's source clients, or data as `learn_rates` takes it.
        settings: what can be chosen; see `LearnSettings`.
        rates: where to begin; zeros if None. Also chooses granularity and what gets rates.
        run_dir: where checkpoints, history and at last `rates.safetensors` are kept; nothing is, if None.
        resume: go on with the newest checkpoint in `run_dir`, to the same bits as without interruption.
        callbacks: more things to happen beside the run.
        evaluate: gives figures on target clients for rates; called every `eval_every` rounds.
        objective: from logits to the unsupervised loss.
        loss: from logits and labels to the supervised loss.
        logits: from the model's output to logits.
        engine: makes what carries the work to the clients; processes on this machine, if None.
        noise_key: the secret that the noise of `settings.privacy` follows from; for studies that must be
            repeatable. If None a new one, kept in `run_dir` alone; local noise is then never the same twice.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in ("north", "south")}
    >>> learned = learn(nn.Linear(3, 2), clients, LearnSettings(rounds=2, batch_size=4, workers=0))
    >>> learned.rates.learned["rounds"], len(learned.history)
    (2, 2)
    """
    settings = settings or LearnSettings()
    # Not over real sites, which are asked for rates alone; with privacy, losses without noise tell too much.
    check = settings.check and engine is None and settings.privacy == "none"
    begin = first_rates(model, settings.only, rates)
    roster = Roster(clients)
    cohort = roster.cohort(settings.cohort)
    check_cohort(settings.average, settings.trim, cohort)
    spending = Spending(begin.current_account(), settings, roster)
    _warn_of(spending, settings)
    size, processes = (
        len(begin.values),
        min(cohort, cores() if settings.workers is None else settings.workers),
    )
    session = Session(
        RunInfo("learn", settings.rounds, len(roster), cohort, layout_of(model).length, size),
        settings,
        roster,
        RatesServer(begin, settings, spending, lambda: _server_key(settings, noise_key, run_dir)),
        lambda: RatesWork(
            Twin(model, begin.modules, readout=logits),
            begin,
            roster,
            settings,
            DirectionCache(settings.direction_cache // max(1, processes), keep="first"),
            objective,
            loss,
            noise_key,
            compare=engine is None and settings.privacy == "none",
        ),
        sticky=True,
        identity=lambda: {
            "kind": "learn",
            "model": weights_hash(model),
            "network": model_hash(model),  # the weights and what else it computes with
            "begin": begin.values.tolist(),
            "granularity": begin.granularity,
            "only": begin.only,
            **_account_of(begin, settings),
            **common(roster, objective=objective, loss=loss, logits=logits),
        },
        make_engine=engine,
    )

    def result(values: Tensor, rounds: int, checked: Record | None = None) -> Rates:
        said: Record = {"rounds": rounds, "clients": len(roster), "library": __version__}
        said |= {name: value for name, value in asdict(settings).items() if name not in _SAID_ELSEWHERE}
        account = Account(no_bound="taken from a run that had not ended")
        if rounds or checked is not None:
            account = spending.account(rounds, values)
        if rounds and settings.privacy != "none":
            # Without what a server that died asked for again: see docs/privacy.md.
            said["spent"] = spending.record(rounds)
        if checked is not None:
            said["checked"] = checked
        return begin.with_values(
            values,
            mode=cast(Mode, settings.mode),
            learned=said,
            weights_hash=weights_hash(model),
            account=account,
        )

    # Rates to be looked at while the run goes on: which round it is, the one who judges is not told.
    judge = None if evaluate is None else lambda vector: evaluate(result(vector, 0))
    verdicts: list[tuple[Verdict, int]] = []
    state = session.run(
        begin.values,
        run_dir,
        resume,
        [Keeping(), *callbacks] if check else callbacks,
        judge,
        (lambda state, judge: verdicts.append(_verdict(settings, begin, state, judge))) if check else None,
    )
    if verdicts:
        found, asked = verdicts[0]
        warn_of(found)
        learned = result(found.chosen.values, found.chosen.rounds, found.recorded(asked))
    else:
        last = _last(settings, state)
        learned = result(last.values, last.rounds)
    if run_dir is not None:
        learned.save(Path(run_dir) / "rates.safetensors")
    return Learned(learned, state.history)


def _last(settings: LearnSettings, state: RunState) -> Candidate:
    """What the run ended with; if it was stopped early, that is its best round."""
    if settings.patience is None:
        return Candidate(state.round, state.vector)
    return Candidate(state.result_round, state.result)


def _verdict(settings: LearnSettings, begin: Rates, state: RunState, judge: Judge) -> tuple[Verdict, int]:
    """What the run ended with, or earlier rates, against no adaptation; and how many clients were asked."""
    answered: list[int] = []

    def total(values: Tensor) -> Tally:
        tally, reports = Tally(), judge(values)
        answered.append(len(reports))
        for report in reports:
            tally.join(**report["adapted"])
        return tally

    others = returnable(begin.values, state.kept)
    if state.best is not None:  # also of checkpoints by earlier versions, which kept nothing else
        others.append(Candidate(state.best_round, state.best))
    return verdict(_last(settings, state), others, total), min(answered)


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


def _account_of(begin: Rates, settings: LearnSettings) -> dict[str, Any]:
    """So that a run is resumed with the account that it began with; zeros have an empty one."""
    account = begin.current_account()
    return {} if settings.privacy == "none" or account == Account() else {"account": account.as_json()}


def _warn_of(spending: Spending, settings: LearnSettings) -> None:
    if settings.privacy != "none" and spending.no_bound:
        log.warning(
            "no privacy bound (%s): epsilon is infinite. For a bound begin with zero rates, or with rates "
            "that have one, and set noise above 0",
            spending.no_bound,
        )


def _server_key(settings: LearnSettings, given: bytes | None, run_dir: str | PathLike[str] | None) -> bytes:
    if settings.privacy != "central":
        return b""
    return kept_key(None if run_dir is None else Path(run_dir)) if given is None else given
