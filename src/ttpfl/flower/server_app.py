"""The app at the server: an order is carried out by the same rounds as on one machine, over real sites."""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from flwr.serverapp import Grid
from torch import nn

from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.checkpoints.progress import TensorBoard
from ttpfl.federation.common.jobs import MakeEngine
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.privacy.accountant import in_words
from ttpfl.federation.rate_run import first_rates
from ttpfl.flower.engine import Assignment, GridEngine
from ttpfl.flower.identity import Identity
from ttpfl.flower.model_store import card_of
from ttpfl.flower.run_spec import RunSpec, write_outcome
from ttpfl.flower.timeouts import Timeouts
from ttpfl.models import load_model
from ttpfl.util.locks import run_lock

log = logging.getLogger("ttpfl")

Identities = Mapping[str, Identity] | None
"""By the sites' names; None: names are believed."""


def main(grid: Grid, path: Path, token: str, identities: Identities) -> None:
    """Carry out the order in the file, from its newest checkpoint on, while signals are still heard."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            with_outcome(path, token, grid, identities=identities)
        except Exception as error:
            failures.append(error)

    # Not in the main thread: signals there are Flower's, which ends this process when its superlink is gone.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(0.5)
    if failures:
        raise failures[0]


def with_outcome(
    path: Path, token: str, grid: Grid, seconds: float = 120.0, identities: Identities = None
) -> None:
    """Carry out the order in the file, and leave word in its folder how that ended, whatever happened.

    Args:
        path: of the order, in the run's folder.
        token: by which the command that waits knows its run.
        grid: see `carry_out`.
        seconds: how long to wait for another run to let go of the folder.
        identities: whose answers count.
    """
    out = path.parent
    with ExitStack() as held, _told(out, token):
        held.enter_context(run_lock(out, token, seconds))
        carry_out(RunSpec.read(path), grid, identities)


@contextmanager
def _told(out: Path, token: str) -> Iterator[None]:
    """Leave word while the folder is still held: a run that let go of it without a word counts as lost."""
    try:
        yield
    except httpx.HTTPError:
        raise  # the superlink is gone: there is no outcome, and the run will be begun again
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        try:
            write_outcome(str(out), token, failure)
        except OSError as another:  # a full disk, say, which may be the first error's reason, too
            log.error("the run failed: %s; nor can its outcome be written to %s: %s", failure, out, another)
        raise
    write_outcome(str(out), token, None)


def carry_out(spec: RunSpec, grid: Grid, identities: Identities = None) -> None:
    """All rounds that are left."""
    model, card = load_model(spec.model, trusted=[] if spec.arch is None else [spec.arch])
    if spec.kind == "train":
        _train(spec, grid, model, card, identities)
    else:
        _learn(spec, grid, model, card, identities)


def _learn(spec: RunSpec, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    settings = LearnSettings(**spec.settings)
    given = None if spec.rates is None else Rates.load(spec.rates, model=model)
    begin = first_rates(model, settings.only, given)
    rates = {"granularity": begin.granularity, "only": begin.only}
    carrier = _Carrier(spec, grid, model, card, rates, spec.largest, identities)
    learn(
        model,
        carrier.sites,
        settings,
        rates=begin,
        run_dir=spec.out,
        resume=True,
        callbacks=[carrier, *_logs(spec)],
        engine=carrier.engine,
    )


def _train(spec: RunSpec, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    # A model's numbers may be anything finite: a count of samples, say, in a buffer.
    carrier = _Carrier(spec, grid, model, card, {}, float("inf"), identities)
    train(
        model,
        carrier.sites,
        TrainSettings(**spec.settings),
        run_dir=spec.out,
        resume=True,
        callbacks=[carrier, *_logs(spec)],
        card={**spec.card, "build": card["build"]},
        engine=carrier.engine,
    )


def _logs(spec: RunSpec) -> list[Callback]:
    return [] if spec.tensorboard is None else [TensorBoard(spec.tensorboard)]


class RemoteSite:
    """A client whose data is elsewhere: only its name is known here."""

    def __init__(self, name: str) -> None:
        self.id = name

    def size(self, part: str) -> int:
        """Nobody is asked before the work: then the answer says it."""
        return 0

    def train(self) -> Any:
        """Never."""
        raise FederationError(f"the data of {self.id!r} does not leave its site")

    validation = train


class _Carrier(Callback):
    """Makes the engine for a run, and notes after every round what happened to its messages."""

    def __init__(
        self,
        spec: RunSpec,
        grid: Grid,
        model: nn.Module,
        card: dict[str, Any],
        rates: dict[str, Any],
        largest: float,
        identities: Identities,
    ) -> None:
        if "build" not in card:
            raise FederationError(f"{spec.model} does not say how its network is built: sites need that")
        self.sites = [RemoteSite(name) for name in spec.sites]
        self._order, self._grid, self._state = spec, grid, model.state_dict()
        self._identities = identities
        settings = {name: value for name, value in spec.settings.items() if name != "workers"}
        built = card_of(model, card["build"])
        self._assignment = Assignment(spec.kind, len(spec.sites), settings, built, rates, largest)
        self._engine: GridEngine | None = None

    @property
    def engine(self) -> MakeEngine:
        """For `learn` and `train`."""
        return self._make

    def _make(self, length: int, dtype: torch.dtype) -> GridEngine:
        timeouts = Timeouts(**self._order.timeouts)
        self._engine = GridEngine(
            self._grid, self._assignment, self._state, timeouts, length, dtype, identities=self._identities
        )
        self._engine.await_sites(self._order.sites)
        return self._engine

    def on_round(self, state: RunState, record: Record) -> None:
        """A line for whoever looks, and one for the file beside the history."""
        figures = {name: value for name, value in record.items() if name.endswith(("_loss", "_accuracy"))}
        said = [f"{name} {value:.4g}" for name, value in figures.items()]
        if privacy := in_words(record):
            said.append(privacy)
        log.info("round %d of %s: %s", record["round"], self._order.settings["rounds"], ", ".join(said))
        if self._engine is not None:
            counts = vars(self._engine.counts)
            with open(Path(self._order.out) / "messages.jsonl", "a") as file:
                file.write(json.dumps({"round": record["round"], "time": time.time(), **counts}) + "\n")
