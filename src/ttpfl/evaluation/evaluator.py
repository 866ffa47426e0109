"""The evaluator, the only holder of target clients' labels."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from ttpfl.evaluation.streams import ALL_ORDERS, ARRANGEMENTS, arranged, order_of
from ttpfl.results.schema import Client, Corruption
from ttpfl.util.settings_kit import check_known, integer

Predictor = Callable[[Tensor], Tensor]
"""Maps a batch of images to logits; it may adapt to the batch, but gets nothing else."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Runs predictors on target clients' streams and compares predictions with the labels.

    Args:
        target: The target clients.
        answers: Their labels.
        batch_size: The number of images per batch.
        order: "iid" (random), "recorded" (the client's own), "label-sorted" or "mixed" (classes come and go);
            or, for one stream of all clients, "continual" (one after another), "gradual" (each fades into
            the next), "mixed-clients" (in every batch) or "recurring" (one after another, three times).
        seed: The random seed of the order.

    >>> from ttpfl.data import federate
    >>> population, labels, _ = federate("digits", shift="none")
    >>> evaluator = Evaluator(population.target, labels, batch_size=50)
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
        check_known("order", self.order, ALL_ORDERS, DataError)

    def clients(self) -> list[int]:
        """The numbers of the clients with labels."""
        return [number for number, client in enumerate(self.target) if self.answers.of(client) is not None]

    def described(self) -> list[Client]:
        """The clients with labels, for results."""
        clients = [self.target[number] for number in self.clients()]
        if not clients:
            names = ", ".join(sorted({client.info.name for client in self.target}))
            raise DataError(f"the target clients of {names} have no labels: there is nothing to evaluate")
        return [
            {
                "id": client.id,
                "domain": client.domain,
                "corruption": cast(Corruption | None, client.corruption and client.corruption._asdict()),
                "labels": np.bincount(self.labels(client), minlength=len(client.info.classes)).tolist(),
                "size": len(client),
            }
            for client in clients
        ]

    def streams(self) -> list[tuple[int, ...]]:
        """The clients of each stream: one client each, or all of them."""
        clients = tuple(self.clients())
        return [clients] if self.order in ARRANGEMENTS else [(client,) for client in clients]

    def judge(self, clients: tuple[int, ...], predictor: Predictor) -> tuple[list[dict[str, float]], float]:
        """A predictor's metrics on each client's part of one of `streams`, and its time in seconds."""
        batches, order = self.batches(clients)
        start = time.perf_counter()
        predicted = torch.cat([predictor(batch) for batch in batches])
        seconds = time.perf_counter() - start
        logits = torch.empty_like(predicted)
        logits[order] = predicted  # client by client
        labels = [torch.from_numpy(self._in_order(client)[1]) for client in clients]
        parts = logits.split([len(part) for part in labels])
        return [figures(*pair) for pair in zip(parts, labels, strict=True)], seconds

    def batches(self, clients: tuple[int, ...]) -> tuple[list[Tensor], Tensor]:
        """The batches of one of `streams`, and the positions of its samples in a list client by client."""
        samples = [self.target[client].tensor(self._in_order(client)[0]) for client in clients]
        sizes = [len(part) for part in samples]
        order = torch.arange(sum(sizes))
        if self.order in ARRANGEMENTS:
            order = torch.from_numpy(arranged(self.order, sizes, (self.seed,)))
        x = samples[0] if len(samples) == 1 else torch.cat(samples)
        samples.clear()  # a stream of all clients may be large
        # Indexing copies, since a view would give access to the other batches.
        return [x[positions] for positions in order.split(self.batch_size)], order

    def labels(self, client: TargetClient) -> NDArray[np.int64]:
        """The labels of a client's images, in their order."""
        labels = self.answers.of(client)
        if labels is None:
            raise DataError(f"client {client.id!r} has no labels")
        return labels

    def stream(self, client: int) -> tuple[list[Tensor], NDArray[np.int64], Ids]:
        """A client's own batches, and the labels and ids of their images."""
        ids, labels = self._in_order(client)
        batches = [batch.clone() for batch in self.target[client].tensor(ids).split(self.batch_size)]
        return batches, labels, ids

    def _in_order(self, client: int) -> tuple[Ids, NDArray[np.int64]]:
        """The ids and labels of a client's images in its own order."""
        target = self.target[client]
        order = self.positions(target)
        return target.ids[order], self.labels(target)[order]

    def positions(self, client: TargetClient) -> NDArray[np.int64]:
        """The order of a client's samples as positions among them; random in a stream of all clients."""
        order = "iid" if self.order in ARRANGEMENTS else self.order
        # Samples that are already in random order are not shuffled again.
        order = "recorded" if order == "iid" and client.shuffled else order
        return order_of(order, self.labels(client), (self.seed, *client.id.encode()))

    def means(self, fresh: Callable[[], Predictor]) -> tuple[float, float]:
        """Mean accuracy and loss over all clients; each stream gets a fresh predictor."""
        metrics = [row for clients in self.streams() for row in self.judge(clients, fresh())[0]]
        accuracy, loss = (float(np.mean([row[name] for row in metrics])) for name in ("accuracy", "loss"))
        return accuracy, loss

    def mean_accuracy(self, fresh: Callable[[], Predictor]) -> float:
        """Mean accuracy over all clients."""
        return self.means(fresh)[0]

    def of_model(self, model: nn.Module) -> dict[str, float]:
        """Evaluate a model without adaptation, for `train(evaluate=...)`."""
        accuracy, loss = self.means(lambda: plain(model))
        return {"accuracy": accuracy, "loss": loss}

    def of_rates(self, model: nn.Module, rates: Rates) -> dict[str, float]:
        """Evaluate a model that adapts with these rates, for `learn(evaluate=...)`."""
        metrics = {}
        for mode in get_args(Mode):
            fresh = partial(Personalizer, model, rates, mode=mode)
            metrics[mode], metrics[f"{mode}_loss"] = self.means(fresh)
        return metrics


def plain(model: nn.Module) -> Predictor:
    """A model in evaluation mode as a predictor."""
    runner = Runner(model)

    def predict(batch: Any) -> Tensor:
        with torch.inference_mode():
            return runner.plain(Inputs((batch,), {}))

    return predict
