"""The app at the server: it carries out a run spec over real sites, by the same rounds as on one machine."""

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
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.first_rates import first_rates
from ttpfl.federation.privacy.accountant import in_words
from ttpfl.flower.engine import Assignment, GridEngine
from ttpfl.flower.identity import Identity
from ttpfl.flower.model_store import card_of, outputs_in
from ttpfl.flower.run_spec import RunSpec, write_outcome
from ttpfl.flower.timeouts import Timeouts
from ttpfl.models import load_model
from ttpfl.util.locks import run_lock

log = logging.getLogger("ttpfl")

LARGEST_SLOPE = 1e30
"""Limit in a reply; very large where a step goes too far."""
Identities = Mapping[str, Identity] | None
"""Identities by site name; None trusts the names of nodes."""


def main(grid: Grid, path: Path, token: str, identities: Identities) -> None:
    """Carry out the run spec in a file, from its newest checkpoint on, and keep handling signals."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            with_outcome(path, token, grid, identities=identities)
        except Exception as error:
            failures.append(error)

    # Not in the main thread, which handles the signals: Flower ends this process if its superlink is gone.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(0.5)
    if failures:
        raise failures[0]


def with_outcome(
    path: Path, token: str, grid: Grid, seconds: float = 120.0, identities: Identities = None
) -> None:
    """Carry out the run spec in a file, and record the outcome in its folder in any case.

    Args:
        path: The spec, in the run's folder.
        token: Identifies the run for the command that waits for it.
        grid: Flower's connection to the sites.
        seconds: How long to wait for another run to release the folder.
        identities: Identities of the sites, whose replies count.
    """
    out = path.parent
    with ExitStack() as locks, _outcome_recorded(out, token):
        locks.enter_context(run_lock(out, token, seconds))
        carry_out(RunSpec.read(path), grid, identities)


@contextmanager
def _outcome_recorded(out: Path, token: str) -> Iterator[None]:
    """Record the outcome while the folder is still locked: without lock and outcome, a run counts as lost."""
    try:
        yield
    except httpx.HTTPError:
        raise  # the superlink is gone: there is no outcome, and the run will be restarted
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        try:
            write_outcome(str(out), token, failure)
        except OSError as second:  # such as a full disk, which may also have caused the first error
            log.error("the run failed: %s; and its outcome cannot be written to %s: %s", failure, out, second)
        raise
    write_outcome(str(out), token, None)


def carry_out(spec: RunSpec, grid: Grid, identities: Identities = None) -> None:
    """Run all remaining rounds."""
    model, card = load_model(spec.model, trusted=[] if spec.arch is None else [spec.arch])
    run = _train if spec.kind == "train" else _learn
    run(spec, grid, model, card, identities)


def _learn(spec: RunSpec, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    settings = LearnSettings(**spec.settings)
    loaded = None if spec.rates is None else Rates.load(spec.rates, model=model)
    start = first_rates(model, settings, loaded, outputs_in(card))
    rates: dict[str, Any] = {name: getattr(start, name) for name in ("granularity", "only", "variance")}
    rates["classes"] = len(start.prior)
    rates |= {"head": start.head} if start.only in ("head", "forward") else {}
    largest = LARGEST_SLOPE if settings.searches else spec.largest
    carrier = _Carrier(spec, grid, model, card, rates, largest, identities)
    learn(model, carrier.sites, settings, rates=start, **carrier.options)


def _train(spec: RunSpec, grid: Grid, model: nn.Module, card: dict[str, Any], identities: Identities) -> None:
    # A model's values can be any finite number, such as a count of samples in a buffer.
    carrier = _Carrier(spec, grid, model, card, {}, float("inf"), identities)
    settings, card = TrainSettings(**spec.settings), {**spec.card, "build": card["build"]}
    train(model, carrier.sites, settings, card=card, **carrier.options)


class RemoteSite:
    """A client whose data is at its site: only its name is known here."""

    def __init__(self, name: str) -> None:
        self.id = name

    def size(self, part: str) -> int:
        """Unknown before the site replies."""
        return 0

    def train(self) -> Any:
        """Raise an error: the data cannot be read here."""
        raise FederationError(f"the data of {self.id!r} does not leave its site")

    validation = train


class _Carrier(Callback):
    """Creates the engine of a run, and logs every round together with unexpected messages."""

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
            raise FederationError(f"{spec.model} lacks the arguments to build its network, which sites need")
        self.sites = [RemoteSite(name) for name in spec.sites]
        self._spec, self._grid, self._state = spec, grid, model.state_dict()
        self._identities = identities
        settings = {name: value for name, value in spec.settings.items() if name != "workers"}
        model_card = card_of(model, card["build"])
        self._assignment = Assignment(spec.kind, len(spec.sites), settings, model_card, rates, largest)
        self._engine: GridEngine | None = None
        logs = [] if spec.tensorboard is None else [TensorBoard(spec.tensorboard)]
        self.options: dict[str, Any] = {"run_dir": spec.out, "resume": True, "engine": self._make_engine}
        """Options of `learn` and `train`."""
        self.options["callbacks"] = [self, *logs]

    def _make_engine(self, length: int, dtype: torch.dtype) -> GridEngine:
        timeouts = Timeouts(**self._spec.timeouts)
        self._engine = GridEngine(
            self._grid, self._assignment, self._state, timeouts, length, dtype, identities=self._identities
        )
        self._engine.await_sites(self._spec.sites)
        return self._engine

    def on_round(self, state: RunState, record: Record) -> None:
        """Log the metrics of a round, and append message counts to a file next to the history."""
        metrics = {name: value for name, value in record.items() if name.endswith(("_loss", "_accuracy"))}
        texts = [f"{name} {value:.4g}" for name, value in metrics.items()]
        if privacy := in_words(record):
            texts.append(privacy)
        log.info("round %d of %s: %s", record["round"], self._spec.settings["rounds"], ", ".join(texts))
        if self._engine is not None:
            counts = vars(self._engine.counts)
            with open(Path(self._spec.out) / "messages.jsonl", "a") as file:
                file.write(json.dumps({"round": record["round"], "time": time.time(), **counts}) + "\n")
