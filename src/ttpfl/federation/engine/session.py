"""Everything around the rounds of a run: engine, checkpoints, logs and interruption."""

import json
import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ttpfl.core.learning import recent_clients
from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.checkpoints.callbacks import Callback, EarlyStopping, Evaluation, History, RunInfo
from ttpfl.federation.checkpoints.checkpoint import Checkpoints
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.jobs import Engine, Job, MakeEngine, MakeWork, Server
from ttpfl.federation.common.state import Report, RunState
from ttpfl.federation.engine.in_process import Serial, Strict
from ttpfl.federation.engine.interruption import Interrupted
from ttpfl.federation.engine.processes import Processes
from ttpfl.federation.engine.rounds import run_rounds
from ttpfl.federation.settings import RunSettings
from ttpfl.util.locks import folder_lock
from ttpfl.util.parallel import cores
from ttpfl.util.threads import single_thread

log = logging.getLogger("ttpfl")

Evaluate = Callable[[Tensor], Mapping[str, float]]
Validate = Callable[[Tensor], list[Report]]
"""Maps a vector to the clients' reports on it."""
T = TypeVar("T")
Finish = Callable[[RunState, Validate], T]
"""Called after the last round, while clients can still run."""


@dataclass(frozen=True)
class Session:
    """A run that is ready to start or to resume."""

    info: RunInfo
    settings: RunSettings
    pool: ClientPool
    server: Server
    make_work: MakeWork
    sticky: bool
    """Whether workers keep something per client."""
    identity: Callable[[], dict[str, Any]]
    """What, besides the settings, identifies the run; only called if there are checkpoints."""
    make_engine: MakeEngine | None = None
    """Creates the engine; clients run on this machine if None."""
    strict: bool = False
    """Whether a client's failure ends the run; clients then run in this process."""

    def run(
        self,
        initial: Tensor,
        run_dir: str | PathLike[str] | None,
        resume: bool,
        callbacks: Sequence[Callback],
        evaluate: Evaluate | None,
        finish: Finish[T] | None = None,
    ) -> tuple[RunState, T | None]:
        """Run from `initial` or the newest checkpoint to the last round, then call `finish`.

        Returns the last state and the result of `finish`.
        """
        directory = None if run_dir is None else Path(run_dir)
        with ExitStack() as cleanup:
            for callback in reversed(callbacks):  # the first is closed first
                cleanup.callback(callback.close)
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                cleanup.enter_context(folder_lock(directory))
            state = self._resumed(directory, resume) or RunState(initial.clone())
            done = state.round >= self.settings.rounds or state.stopped
            if done and finish is None:
                return state, None
            callbacks = self._callbacks(directory, callbacks, evaluate)
            engine = self.engine(len(state.vector), state.vector.dtype)
            cleanup.callback(engine.close)
            try:
                if not done:
                    run_rounds(state, self.settings, self.info, self.pool, self.server, engine, callbacks)
                validate = partial(self._validate, engine, state.round)
                return state, None if finish is None else finish(state, validate)
            except Interrupted:
                kept = "no checkpoint was kept"
                if directory is not None:
                    kept = f"resume from {directory / checkpoint.FOLDER}"
                raise Interrupted(f"stopped after {state.round} rounds; {kept}") from None

    def _validate(self, engine: Engine, rounds: int, vector: Tensor) -> list[Report]:
        """Reports of recent clients about a vector, on their validation data; failed clients have none."""
        clients = recent_clients(range(len(self.pool)), self.info.cohort, self.settings.seed, rounds)
        jobs = [Job(client, self.pool.name(client), rounds, validate=True) for client in clients]
        reports = []
        # Not more at a time than in a round: for more, workers would be restarted and lose their caches.
        for first in range(0, len(jobs), self.info.cohort):
            with single_thread():
                results = engine.run(jobs[first : first + self.info.cohort], vector)
                reports += [result.report for result in results if result.failure is None]
        return reports

    def _resumed(self, directory: Path | None, resume: bool) -> RunState | None:
        """The state to resume from, if any."""
        if directory is None:
            if resume:
                raise FederationError("there is nothing to resume from: pass run_dir=")
            return None
        if not resume:
            if any((directory / checkpoint.FOLDER).glob("*.safetensors")):
                raise FederationError(
                    f"{directory} already has a run: resume it (resume=True) or use another folder"
                )
            return None
        state = checkpoint.newest(directory, self._full_identity)
        if state is None:
            log.info("%s has no checkpoint: starting from round 0", directory)
        elif state.round > self.settings.rounds and not state.stopped:
            raise FederationError(
                f"rounds is {self.settings.rounds}, but the run in {directory} already has {state.round}: "
                f"set rounds to {state.round} or more, or use another folder"
            )
        return state

    @cached_property
    def _full_identity(self) -> dict[str, Any]:
        """With the settings, in the form read from a checkpoint."""
        return cast(dict[str, Any], json.loads(json.dumps({**self.settings.decisive(), **self.identity()})))

    def _callbacks(
        self, directory: Path | None, callbacks: Sequence[Callback], evaluate: Evaluate | None
    ) -> list[Callback]:
        """The callbacks that the settings require, and the user's.

        Checkpoints come last: they include what the others added to the record or decided, and once one is
        written, all files are complete up to its round.
        """
        settings, active = self.settings, list[Callback]()
        if settings.eval_every:
            if evaluate is None:
                raise FederationError("eval_every needs a function that evaluates: pass evaluate=")
            active.append(Evaluation(evaluate, settings.eval_every))
        if settings.patience is not None:
            active.append(EarlyStopping(settings.patience))
        active += callbacks
        if directory is not None:
            every, keep = settings.checkpoint_every, settings.keep
            active += [History(directory), Checkpoints(directory, self._full_identity, every, keep)]
        return active

    def engine(self, length: int, dtype: torch.dtype) -> Engine:
        """Create the engine that runs clients."""
        if self.make_engine is not None:
            return self.make_engine(length, dtype)
        if self.strict:
            return Strict(self.make_work, length, dtype)
        workers = cores() if self.settings.workers is None else self.settings.workers
        if workers and "fork" not in multiprocessing.get_all_start_methods():
            log.warning("this system cannot fork processes: running clients in this process")
            workers = 0
        if not workers:
            return Serial(self.make_work, length, dtype)
        return Processes(self.make_work, length, min(workers, self.info.cohort), self.sticky, dtype)
