"""Training a global model: a client's work, and the server's aggregation of the results.

Independent of any engine: whatever carries the messages calls the same functions.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ttpfl.core.metric_sums import MetricSums, MetricSumsByName
from ttpfl.errors import BatchError, FederationError
from ttpfl.federation.clients.local_training import LocalTrainer
from ttpfl.federation.common.client_pool import ClientPool, Part
from ttpfl.federation.common.jobs import ClientResult, Job, Server
from ttpfl.federation.common.state import Record, Report, RunState
from ttpfl.federation.common.state_vector import Layout, pack
from ttpfl.federation.server.aggregation import QFFL, Algorithm, FedAvg, FedProx, Reply, Sums
from ttpfl.federation.settings import TrainSettings
from ttpfl.util.settings_kit import find

ALGORITHMS: dict[str, Callable[[TrainSettings], Algorithm]] = {
    "fedavg": lambda settings: FedAvg(),
    "fedprox": lambda settings: FedProx(settings.mu),
    "qffl": lambda settings: QFFL(settings.q),
}


def algorithm_of(settings: TrainSettings) -> Algorithm:
    """The algorithm that the settings name."""
    return find("algorithm", settings.algorithm, ALGORITHMS, FederationError)(settings)


@dataclass(frozen=True)
class ModelWork:
    """A client's work: train the worker's model in place."""

    trainer: LocalTrainer
    pool: ClientPool
    layout: Layout
    settings: TrainSettings
    needs_loss_before: bool

    def __call__(self, job: Job, message: Tensor, out: Tensor, /) -> Report:
        """Train from the global model, with the client's buffers if they are local."""
        trainer, settings, seed = self.trainer, self.settings, (self.settings.seed, job.round, job.client)
        if job.validate:
            trainer.load(message)
            held_out = self.pool.data(job.client, "validation", seed)
            return {"survey": asdict(trainer.evaluate(held_out, seed))}
        initial = message
        if settings.buffers == "local":
            split = self.layout.buffers_from
            initial = torch.cat([message[:split], out[: self.layout.length - split]])
        trainer.load(initial)
        sums: Report = {}
        if settings.validate_every and job.round % settings.validate_every == 0:
            held_out = self.pool.data(job.client, "validation", seed)
            sums["validation"] = trainer.evaluate(held_out, seed).sums()
        data = self.pool.data(job.client, "train", seed)
        if self.needs_loss_before:
            before = trainer.evaluate(data, seed)
            if not math.isfinite(before.loss):
                raise BatchError("the global model's loss on its data is not finite")
            sums["before"] = before.sums()
        sums["train"] = trainer.train(data, seed).sums()
        pack(trainer.model, out)
        return {"samples": trainer.seen // settings.local_epochs, "tallies": sums}


class ModelServer(Server):
    """Aggregates the clients' models."""

    part: Part = "train"

    def __init__(self, algorithm: Algorithm, layout: Layout, lr: float, local: bool) -> None:
        self._algorithm, self._layout, self._lr, self._local = algorithm, layout, lr, local
        self._sums = Sums(torch.zeros(layout.length, dtype=torch.float64))

    def begin(self, state: RunState) -> None:
        """Start a round with empty sums."""
        self._state, self._metrics = state, MetricSumsByName()
        self._buffers: dict[int, Tensor] = {}
        self._sums = Sums(self._sums.vector.zero_())

    def start(self, state: RunState, client: int) -> Tensor | None:
        """The client's buffers, if they are local."""
        if not self._local:
            return None
        return state.local.get(client, state.vector[self._layout.buffers_from :])

    def add(self, result: ClientResult) -> None:
        """Add a client's model."""
        sums = result.report["tallies"]
        before = MetricSums(**sums["before"]).mean_loss if "before" in sums else 0.0
        reply = Reply(result.vector, result.report["samples"], before)
        self._algorithm.add(self._sums, reply, self._state.vector, self._layout, self._lr)
        if self._local:
            self._buffers[result.job.client] = result.vector[self._layout.buffers_from :].clone()
        self._metrics.add(sums)

    def finish(self) -> Tensor:
        """The next global model."""
        self._state.local |= self._buffers
        return self._algorithm.finish(self._sums, self._state.vector, self._layout)

    def summary(self) -> Record:
        """Loss and accuracy in training, and of the model that the round started with."""
        return self._metrics.summary()
