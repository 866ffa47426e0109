"""Training a global model: a client's work, and what the server makes of the answers.

No engine is imported here: whatever carries the messages calls the same functions.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ttpfl.core.metric_sums import MetricSums, MetricSumsByName
from ttpfl.errors import BatchError, FederationError
from ttpfl.federation.common.client_pool import ClientPool, Part
from ttpfl.federation.common.jobs import ClientResult, Job
from ttpfl.federation.common.state import Record, Report, RunState
from ttpfl.federation.common.state_vector import Layout, pack
from ttpfl.federation.server.aggregation import QFFL, Algorithm, FedAvg, FedProx, Reply, Sums
from ttpfl.federation.settings import TrainSettings
from ttpfl.federation.work.local_training import LocalTrainer
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
    """A client's work in a worker: train the resident model, in place."""

    trainer: LocalTrainer
    client_pool: ClientPool
    layout: Layout
    settings: TrainSettings
    needs_loss_before: bool

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Begin with the global model (and, where they are local, with the client's own buffers)."""
        trainer, settings, seed = self.trainer, self.settings, (self.settings.seed, job.round, job.client)
        if job.judge:
            trainer.load(message)
            held_back = self.client_pool.data(job.client, "validation", seed)
            return {"survey": asdict(trainer.evaluate(held_back, seed))}
        begin = message
        if settings.buffers == "local":
            split = self.layout.buffers_from
            begin = torch.cat([message[:split], answer[: self.layout.length - split]])
        trainer.load(begin)
        tallies: Report = {}
        if settings.validate_every and job.round % settings.validate_every == 0:
            held_back = self.client_pool.data(job.client, "validation", seed)
            tallies["validation"] = trainer.evaluate(held_back, seed).sums()
        data = self.client_pool.data(job.client, "train", seed)
        if self.needs_loss_before:
            before = trainer.evaluate(data, seed)
            if not math.isfinite(before.loss):
                raise BatchError("the global model's loss on its data is not finite")
            tallies["before"] = before.sums()
        trained = trainer.train(data, seed)
        pack(trainer.model, answer)
        return {
            "samples": trainer.seen // settings.local_epochs,
            "tallies": {**tallies, "train": trained.sums()},
        }


class ModelServer:
    """Takes the clients' models together."""

    part: Part = "train"

    def __init__(self, algorithm: Algorithm, layout: Layout, lr: float, local: bool) -> None:
        self._algorithm, self._layout, self._lr, self._local = algorithm, layout, lr, local
        self._sums = Sums(torch.zeros(layout.length, dtype=torch.float64))

    def begin(self, state: RunState) -> None:
        """A new round: empty sums."""
        self._state, self._tallies = state, MetricSumsByName()
        self._buffers: dict[int, Tensor] = {}
        self._sums = Sums(self._sums.vector.zero_())

    def start(self, state: RunState, client: int) -> Tensor | None:
        """The client's own buffers, if they stay there."""
        if not self._local:
            return None
        return state.local.get(client, state.vector[self._layout.buffers_from :])

    def add(self, answer: ClientResult) -> None:
        """One more model."""
        tallies = answer.report["tallies"]
        before = MetricSums(**tallies["before"]).mean_loss if "before" in tallies else 0.0
        reply = Reply(answer.vector, answer.report["samples"], before)
        self._algorithm.add(self._sums, reply, self._state.vector, self._layout, self._lr)
        if self._local:
            self._buffers[answer.job.client] = answer.vector[self._layout.buffers_from :].clone()
        self._tallies.add(tallies)

    def enough(self) -> bool:
        """Any number of models has a mean."""
        return True

    def finish(self) -> Tensor:
        """The next global model."""
        self._state.local |= self._buffers
        return self._algorithm.finish(self._sums, self._state.vector, self._layout)

    def summary(self) -> Record:
        """Loss and accuracy: when training, and of the model that the round began with."""
        return self._tallies.summary()
