"""The evaluator: the one who holds the labels of target clients."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttpfl.core.inputs import Inputs
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Mode, Rates
from ttpfl.core.runner import Runner
from ttpfl.data.clients import TargetClient, TargetLabels
from ttpfl.data.partition import Ids
from ttpfl.errors import DataError
from ttpfl.evaluation.metrics import figures
from ttpfl.evaluation.streams import order_of
from ttpfl.results.schema import Client, Corruption
from ttpfl.util.settings_kit import integer

Predictor = Callable[[Tensor], Tensor]
"""From a batch of images to logits; it may learn from the batch, but gets nothing else."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Runs predictors over target clients' streams and compares with labels that only it knows.

    Args:
        target: the target clients.
        answers: their labels.
        batch_size: images that come at a time; 1 is one at a time.
        order: "iid" (random), "recorded" (as the client has its samples), "label-sorted" or "mixed"
            (classes come and go).
        seed: of the order.

    >>> from ttpfl.data import federate
    >>> population, answers, _ = federate("digits", shift="none")
    >>> evaluator = Evaluator(population.target, answers, batch_size=50)
    >>> always_zero = lambda batch: torch.eye(10)[torch.zeros(len(batch), dtype=torch.long)]
    >>> round(evaluator.mean_accuracy(lambda: always_zero), 2)
    0.1
    """

    target: Sequence[TargetClient]
    answers: TargetLabels
    batch_size: int = 20
    order: str = "iid"
    seed: int = 0

    def __post_init__(self) -> None:
        integer(1).check(DataError, batch_size=self.batch_size)
        order_of(self.order, np.zeros(1, np.int64), (0,))  # its own check

    def clients(self) -> list[int]:
        """Numbers of the clients whose labels are known."""
        return [number for number, client in enumerate(self.target) if self.answers.of(client) is not None]

    def described(self) -> list[Client]:
        """These clients as results have them."""
        found = [(client, self.labels(client)) for client in map(self.target.__getitem__, self.clients())]
        if not found:
            names = ", ".join(sorted({client.info.name for client in self.target}))
            raise DataError(f"nobody knows the labels of the target clients of {names}: nothing to see")
        return [
            {
                "id": client.id,
                "domain": client.domain,
                "corruption": cast(Corruption | None, client.corruption and client.corruption._asdict()),
                "labels": np.bincount(labels, minlength=len(client.info.classes)).tolist(),
                "size": len(client),
            }
            for client, labels in found
        ]

    def judge(self, client: int, predictor: Predictor) -> tuple[dict[str, float], float]:
        """A predictor's figures over one client's stream, and the seconds that it took."""
        batches, labels, _ = self.stream(client)
        begin = time.perf_counter()
        logits = [predictor(batch) for batch in batches]
        seconds = time.perf_counter() - begin
        return figures(torch.cat(logits), torch.from_numpy(labels)), seconds

    def labels(self, client: TargetClient) -> NDArray[np.int64]:
        """Of its images, in their order."""
        labels = self.answers.of(client)
        if labels is None:
            raise DataError(f"nobody knows the labels of client {client.id!r}")
        return labels

    def stream(self, client: int) -> tuple[list[Tensor], NDArray[np.int64], Ids]:
        """A client's batches in the order in which they come; the labels and ids of their images."""
        target = self.target[client]
        order = self.positions(target)
        ids, labels = target.ids[order], self.labels(target)[order]
        # Copies: what is handed out does not know of the other batches.
        batches = [batch.clone() for batch in target.tensor(ids).split(self.batch_size)]
        return batches, labels, ids

    def positions(self, client: TargetClient) -> NDArray[np.int64]:
        """The order of a client's stream, as positions among its samples."""
        # Samples that were dealt out at random keep their order: shuffling again adds nothing.
        order = "recorded" if self.order == "iid" and client.shuffled else self.order
        return order_of(order, self.labels(client), (self.seed, *client.id.encode()))

    def means(self, fresh: Callable[[], Predictor]) -> tuple[float, float]:
        """Accuracy and loss over all clients; every one gets a fresh predictor."""
        found = [self.judge(client, fresh())[0] for client in self.clients()]
        accuracy, loss = (float(np.mean([one[name] for one in found])) for name in ("accuracy", "loss"))
        return accuracy, loss

    def mean_accuracy(self, fresh: Callable[[], Predictor]) -> float:
        """Over all clients."""
        return self.means(fresh)[0]

    def of_model(self, model: nn.Module) -> dict[str, float]:
        """A model that does not adapt; for `train(evaluate=...)`."""
        accuracy, loss = self.means(lambda: plain(model))
        return {"accuracy": accuracy, "loss": loss}

    def of_rates(self, model: nn.Module, rates: Rates) -> dict[str, float]:
        """A model that adapts with these rates; for `learn(evaluate=...)`."""

        def fresh(mode: Mode) -> Callable[[], Predictor]:
            return lambda: Personalizer(model, rates, mode=mode)

        figures = {}
        for mode in get_args(Mode):
            figures[mode], figures[f"{mode}_loss"] = self.means(fresh(mode))
        return figures


def plain(model: nn.Module) -> Predictor:
    """A model as a predictor; it should be in evaluation mode."""
    runner = Runner(model)

    def predict(batch: Any) -> Tensor:
        with torch.inference_mode():
            return runner.plain(Inputs((batch,), {}))

    return predict
