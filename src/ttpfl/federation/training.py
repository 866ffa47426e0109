"""Training a global model over source clients."""

import copy
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ttpfl.errors import BatchError, FederationError
from ttpfl.federation.aggregation import QFFL, Algorithm, FedAvg, FedProx, Reply, Sums
from ttpfl.federation.callbacks import Callback, RunInfo
from ttpfl.federation.engine import Answer, Job
from ttpfl.federation.identity import common
from ttpfl.federation.local_training import LocalTrainer, LocalTraining
from ttpfl.federation.roster import Clients, Part, Roster
from ttpfl.federation.session import Session
from ttpfl.federation.settings import TrainSettings
from ttpfl.federation.state import Record, Report, RunState
from ttpfl.federation.state_vector import Layout, layout_of, pack, unpack
from ttpfl.federation.tally import Tallies, Tally
from ttpfl.learning import Loss, cross_entropy
from ttpfl.models.files import save_model
from ttpfl.network import configuration, weights_hash
from ttpfl.twin import Readout

ALGORITHMS: dict[str, Callable[[TrainSettings], Algorithm]] = {
    "fedavg": lambda settings: FedAvg(),
    "fedprox": lambda settings: FedProx(settings.mu),
    "qffl": lambda settings: QFFL(settings.q),
}


class Trained(NamedTuple):
    """A global model in evaluation mode, and how it came about."""

    model: nn.Module
    history: list[Record]


def train(
    model: nn.Module,
    clients: Clients,
    settings: TrainSettings | None = None,
    *,
    run_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    loss: Loss = cross_entropy,
    logits: Readout | None = None,
    card: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a copy of `model` over clients by federated averaging.

    Args:
        model: where to begin; it is not changed.
        clients: a population's source clients, or data as `learn_rates` takes it.
        settings: what can be chosen; see `TrainSettings`.
        run_dir: where checkpoints, history and at last `model.safetensors` are kept; nothing is, if None.
        resume: go on with the newest checkpoint in `run_dir`. The result is the same to the bit as that of
            a run that was never interrupted.
        callbacks: more things to happen beside the run.
        evaluate: gives figures on target clients for a model; called every `eval_every` rounds.
        loss: from logits and labels to the loss.
        logits: from the model's output to logits.
        card: plain data to keep in `model.safetensors`; see `save_model`.

    >>> _ = torch.manual_seed(0)
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in ("north", "south")}
    >>> trained = train(nn.Linear(3, 2), clients, TrainSettings(rounds=2, batch_size=4, workers=0))
    >>> [record["round"] for record in trained.history]
    [0, 1]
    """
    settings = settings or TrainSettings()
    roster, layout = Roster(clients), layout_of(model)
    algorithm, cohort = algorithm_of(settings), roster.cohort(settings.cohort)
    session = Session(
        RunInfo("train", settings.rounds, len(roster), cohort, layout.length, layout.length),
        settings,
        roster,
        ModelServer(algorithm, layout, settings.lr, local=settings.buffers == "local"),
        lambda: ModelWork(
            LocalTrainer(copy.deepcopy(model), _local(settings, algorithm), loss, logits),
            roster,
            layout,
            settings,
            algorithm.needs_loss_before,
        ),
        sticky=False,
        identity={
            "kind": "train",
            "model": _begin_hash(model),
            **common(roster, loss=loss, logits=logits),
        },
    )
    begin = pack(model, torch.empty(layout.length, dtype=layout.dtype))
    judge = None if evaluate is None else lambda vector: evaluate(with_state(model, vector))
    state = session.run(begin, run_dir, resume, callbacks, judge)
    result = with_state(model, state.result)
    if run_dir is not None:
        save_model(
            Path(run_dir) / "model.safetensors", result, **{"trained": asdict(settings), **(card or {})}
        )
    return Trained(result, state.history)


def algorithm_of(settings: TrainSettings) -> Algorithm:
    """The algorithm that the settings name."""
    if settings.algorithm not in ALGORITHMS:
        raise FederationError(f"algorithm is {settings.algorithm!r}, not one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[settings.algorithm](settings)


def with_state(model: nn.Module, vector: Tensor) -> nn.Module:
    """A copy of `model` with the state in `vector`, in evaluation mode."""
    own = copy.deepcopy(model).eval()
    unpack(vector, own)
    return own


def _local(settings: TrainSettings, algorithm: Algorithm) -> LocalTraining:
    shared = {field.name for field in fields(LocalTraining)} - {"proximal"}
    return LocalTraining(**{name: getattr(settings, name) for name in shared}, proximal=algorithm.proximal)


def _begin_hash(model: nn.Module) -> str:
    # Functions among a layer's attributes are shown with an address, which is another one in every process.
    settings = re.sub(r" at 0x[0-9a-f]+", "", configuration(model))
    return hashlib.sha256((weights_hash(model) + settings).encode()).hexdigest()


@dataclass(frozen=True)
class ModelWork:
    """A client's work in a worker: train the resident model, in place."""

    trainer: LocalTrainer
    roster: Roster
    layout: Layout
    settings: TrainSettings
    needs_loss_before: bool

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Begin with the global model (and, where they are local, with the client's own buffers)."""
        trainer, settings, seed = self.trainer, self.settings, (self.settings.seed, job.round, job.client)
        begin = message
        if settings.buffers == "local":
            split = self.layout.buffers_from
            begin = torch.cat([message[:split], answer[: self.layout.length - split]])
        trainer.load(begin)
        tallies: Report = {}
        if settings.validate_every and job.round % settings.validate_every == 0:
            held_back = self.roster.data(job.client, "validation", seed)
            tallies["validation"] = asdict(trainer.evaluate(held_back, seed))
        data = self.roster.data(job.client, "train", seed)
        if self.needs_loss_before:
            before = trainer.evaluate(data, seed)
            if not math.isfinite(before.loss):
                raise BatchError("the global model's loss on its data is not finite")
            tallies["before"] = asdict(before)
        trained = trainer.train(data, seed)
        pack(trainer.model, answer)
        # A client weighs as much as it has; how much that is, a DataLoader shows when it is used.
        samples = trained.samples if isinstance(data, DataLoader) else self.roster.size(job.client, "train")
        return {"samples": samples, "tallies": {**tallies, "train": asdict(trained)}}


class ModelServer:
    """Takes the clients' models together."""

    part: Part = "train"

    def __init__(self, algorithm: Algorithm, layout: Layout, lr: float, local: bool) -> None:
        self._algorithm, self._layout, self._lr, self._local = algorithm, layout, lr, local
        self._sums = Sums(torch.zeros(layout.length, dtype=torch.float64))

    def begin(self, state: RunState) -> None:
        """A new round: empty sums."""
        self._state, self._tallies = state, Tallies()
        self._buffers: dict[int, Tensor] = {}
        self._sums = Sums(self._sums.vector.zero_())

    def start(self, state: RunState, client: int) -> Tensor | None:
        """The client's own buffers, if they stay there."""
        if not self._local:
            return None
        return state.local.get(client, state.vector[self._layout.buffers_from :])

    def add(self, answer: Answer) -> None:
        """One more model."""
        tallies = answer.report["tallies"]
        before = Tally(**tallies["before"]).mean_loss if "before" in tallies else 0.0
        reply = Reply(answer.vector, answer.report["samples"], before)
        self._algorithm.add(self._sums, reply, self._state.vector, self._layout, self._lr)
        if self._local:
            self._buffers[answer.job.client] = answer.vector[self._layout.buffers_from :].clone()
        self._tallies.add(tallies)

    def finish(self) -> Tensor:
        """The next global model."""
        self._state.local |= self._buffers
        return self._algorithm.finish(self._sums, self._state.vector, self._layout)

    def summary(self) -> Record:
        """Loss and accuracy: when training, and of the model that the round began with."""
        return self._tallies.summary()
