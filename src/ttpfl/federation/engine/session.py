"""What surrounds the rounds of any run: engine, checkpoints, logs, interruption."""

import json
import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ttpfl.core.learning import recent_clients
from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.checkpoints.callbacks import Callback, EarlyStopping, Evaluation, History, RunInfo
from ttpfl.federation.checkpoints.checkpoint import Checkpoints
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.jobs import Engine, Job, MakeEngine, MakeWork
from ttpfl.federation.common.state import Report, RunState
from ttpfl.federation.common.traffic import Traffic
from ttpfl.federation.engine.in_process import Serial, Strict
from ttpfl.federation.engine.interruption import Interrupted
from ttpfl.federation.engine.processes import Processes
from ttpfl.federation.engine.rounds import Server, run_rounds
from ttpfl.federation.settings import RunSettings
from ttpfl.util.locks import folder_lock
from ttpfl.util.parallel import cores
from ttpfl.util.threads import single_thread

log = logging.getLogger("ttpfl")

Judge = Callable[[Tensor], list[Report]]
"""From a vector to what each client says about it."""
T = TypeVar("T")
Finish = Callable[[RunState, Judge], T]
"""What is done after the last round, while the clients can still be asked."""


@dataclass(frozen=True)
class Session:
    """A run that is ready to begin, or to go on."""

    info: RunInfo
    settings: RunSettings
    client_pool: ClientPool
    server: Server
    make_work: MakeWork
    sticky: bool
    """Whether workers keep something per client."""
    identity: Callable[[], dict[str, Any]]
    """What, beside the settings, makes the run what it is; only runs that are kept are asked."""
    make_engine: MakeEngine | None = None
    """Where clients work; on this machine, if None."""
    strict: bool = False
    """Whether a client's failure ends the run; then clients work in this process."""

    def run(
        self,
        begin: Tensor,
        run_dir: str | PathLike[str] | None,
        resume: bool,
        callbacks: Sequence[Callback],
        evaluate: Callable[[Tensor], Mapping[str, float]] | None,
        finish: Finish[T] | None = None,
    ) -> tuple[RunState, T | None]:
        """From `begin`, or from the newest checkpoint, to the last round; then `finish`, if given.

        Returns the last state, and what `finish` gave.
        """
        directory = None if run_dir is None else Path(run_dir)
        with ExitStack() as at_last:
            for callback in reversed(callbacks):  # the first is closed first
                at_last.callback(callback.close)
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                at_last.enter_context(folder_lock(directory))
            state = self._found(directory, resume) or RunState(begin.clone())
            done = state.round >= self.settings.rounds or state.stopped
            if done and finish is None:
                return state, None
            around = self._callbacks(directory, callbacks, evaluate)
            engine = self._engine(len(state.vector), state.vector.dtype)
            at_last.callback(engine.close)
            try:
                if not done:
                    self._run_rounds(state, engine, around)
                judge = partial(self._judged, engine, state.round)
                return state, None if finish is None else finish(state, judge)
            except Interrupted:
                raise Interrupted(_farewell(state, directory)) from None

    def _run_rounds(self, state: RunState, engine: Engine, callbacks: Sequence[Callback]) -> None:
        info, size = self.info, state.vector.element_size()
        traffic = Traffic(info.model_numbers * size, info.vector_numbers * size, once=info.kind == "learn")
        run_rounds(state, self.settings, info, self.client_pool, self.server, engine, traffic, callbacks)

    def _judged(self, engine: Engine, rounds: int, vector: Tensor) -> list[Report]:
        """What recent clients say about a vector on their validation data; those that fail say nothing."""
        clients = recent_clients(range(len(self.client_pool)), self.info.cohort, self.settings.seed, rounds)
        jobs = [Job(client, self.client_pool.name(client), rounds, judge=True) for client in clients]
        reports = []
        # No more at a time than in a round: for more, workers would be started anew, and forget all.
        for first in range(0, len(jobs), self.info.cohort):
            with single_thread():
                answers = engine.run(jobs[first : first + self.info.cohort], vector)
                reports += [answer.report for answer in answers if answer.failure is None]
        return reports

    def _found(self, directory: Path | None, resume: bool) -> RunState | None:
        """What there is to go on with."""
        if directory is None:
            if resume:
                raise FederationError("there is nothing to resume from: pass run_dir=")
            return None
        if not resume:
            if any((directory / checkpoint.FOLDER).glob("*.safetensors")):
                raise FederationError(
                    f"{directory} already has a run: resume it (resume=True) or begin elsewhere"
                )
            return None
        state = checkpoint.newest(directory, self._whole_identity)
        if state is None:
            log.info("%s has no checkpoint: beginning anew", directory)
        elif state.round > self.settings.rounds and not state.stopped:
            raise FederationError(
                f"rounds is {self.settings.rounds}, but the run in {directory} already has {state.round}: "
                f"ask for {state.round} or more, or begin a shorter run elsewhere"
            )
        return state

    @cached_property
    def _whole_identity(self) -> dict[str, Any]:
        """As it will be read from a checkpoint."""
        identity: dict[str, Any] = json.loads(json.dumps({**self.settings.decisive(), **self.identity()}))
        return identity

    def _callbacks(
        self,
        directory: Path | None,
        callbacks: Sequence[Callback],
        evaluate: Callable[[Tensor], Mapping[str, float]] | None,
    ) -> list[Callback]:
        """Those that come with the settings, and the user's.

        Checkpoints come last: they hold what the others added to the record or decided, and once one is
        written, nothing of its round is missing anywhere.
        """
        settings, chosen = self.settings, list[Callback]()
        if settings.eval_every:
            if evaluate is None:
                raise FederationError("eval_every asks for evaluations, but nobody can: pass evaluate=")
            chosen.append(Evaluation(evaluate, settings.eval_every))
        if settings.patience is not None:
            chosen.append(EarlyStopping(settings.patience))
        chosen += callbacks
        if directory is not None:
            chosen.append(History(directory))
            chosen.append(
                Checkpoints(directory, self._whole_identity, settings.checkpoint_every, settings.keep)
            )
        return chosen

    def _engine(self, length: int, dtype: torch.dtype) -> Engine:
        if self.make_engine is not None:
            return self.make_engine(length, dtype)
        if self.strict:
            return Strict(self.make_work, length, dtype)
        workers = cores() if self.settings.workers is None else self.settings.workers
        if workers and "fork" not in multiprocessing.get_all_start_methods():
            log.warning("this system cannot fork processes: computing in this one")
            workers = 0
        if not workers:
            return Serial(self.make_work, length, dtype)
        workers = min(workers, self.info.cohort)
        return Processes(self.make_work, length, workers, self.sticky, dtype)


def _farewell(state: RunState, directory: Path | None) -> str:
    if directory is None:
        return f"stopped after {state.round} rounds; nothing was kept, since there is no run_dir"
    return f"stopped after {state.round} rounds; {directory / checkpoint.FOLDER} is there to resume from"
