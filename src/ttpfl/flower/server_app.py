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

from ttpfl.errors import FederationError
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.accountant import in_words
from ttpfl.federation.jobs import MakeEngine
from ttpfl.federation.progress import TensorBoard
from ttpfl.federation.rate_run import first_rates
from ttpfl.federation.state import Record, RunState
from ttpfl.flower.engine import Assignment, GridEngine
from ttpfl.flower.identity import Identity
from ttpfl.flower.model_store import card_of
from ttpfl.flower.order import Order, write_outcome
from ttpfl.flower.patience import Patience
from ttpfl.flower.run_lock import alone
from ttpfl.models import load_model
from ttpfl.rates import Rates

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
        held.enter_context(alone(out, token, seconds))
        carry_out(Order.read(path), grid, identities)


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


def carry_out(order: Order, grid: Grid, identities: Identities = None) -> None:
    """All rounds that are left."""
    model, card = load_model(order.model, trusted=[] if order.arch is None else [order.arch])
    if order.kind == "train":
        _train(order, grid, model, card, identities)
    else:
        _learn(order, grid, model, card, identities)


def _learn(order: Order, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    settings = LearnSettings(**order.settings)
    given = None if order.rates is None else Rates.load(order.rates, model=model)
    begin = first_rates(model, settings.only, given)
    rates = {"granularity": begin.granularity, "only": begin.only}
    carrier = _Carrier(order, grid, model, card, rates, order.largest, identities)
    learn(
        model,
        carrier.sites,
        settings,
        rates=begin,
        run_dir=order.out,
        resume=True,
        callbacks=[carrier, *_logs(order)],
        engine=carrier.engine,
    )


def _train(order: Order, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    # A model's numbers may be anything finite: a count of samples, say, in a buffer.
    carrier = _Carrier(order, grid, model, card, {}, float("inf"), identities)
    train(
        model,
        carrier.sites,
        TrainSettings(**order.settings),
        run_dir=order.out,
        resume=True,
        callbacks=[carrier, *_logs(order)],
        card={**order.card, "build": card["build"]},
        engine=carrier.engine,
    )


def _logs(order: Order) -> list[Callback]:
    return [] if order.tensorboard is None else [TensorBoard(order.tensorboard)]


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
        order: Order,
        grid: Grid,
        model: nn.Module,
        card: dict[str, Any],
        rates: dict[str, Any],
        largest: float,
        identities: Identities,
    ) -> None:
        if "build" not in card:
            raise FederationError(f"{order.model} does not say how its network is built: sites need that")
        self.sites = [RemoteSite(name) for name in order.sites]
        self._order, self._grid, self._state = order, grid, model.state_dict()
        self._identities = identities
        settings = {name: value for name, value in order.settings.items() if name != "workers"}
        built = card_of(model, card["build"])
        self._assignment = Assignment(order.kind, len(order.sites), settings, built, rates, largest)
        self._engine: GridEngine | None = None

    @property
    def engine(self) -> MakeEngine:
        """For `learn` and `train`."""
        return self._make

    def _make(self, length: int, dtype: torch.dtype) -> GridEngine:
        patience = Patience(**self._order.patience)
        self._engine = GridEngine(
            self._grid, self._assignment, self._state, patience, length, dtype, identities=self._identities
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
