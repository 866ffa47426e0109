"""The evaluator: the one who holds the labels of target clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttpfl.data.clients import Answers, TargetClient
from ttpfl.personalizer import Personalizer
from ttpfl.rates import Rates

Predictor = Callable[[Tensor], Tensor]
"""From a batch of images to logits; it may learn from the batch, but gets nothing else."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Runs predictors over target clients' streams and compares with labels that only it knows.

    >>> from ttpfl.data import federate
    >>> population, answers, _ = federate("digits", shift="none")
    >>> evaluator = Evaluator(population.target, answers, batch_size=50)
    >>> always_zero = lambda batch: torch.eye(10)[torch.zeros(len(batch), dtype=torch.long)]
    >>> accuracy = evaluator.accuracy(lambda: always_zero)
    >>> round(sum(accuracy.values()) / len(accuracy), 2)
    0.1
    """

    target: Sequence[TargetClient]
    answers: Answers
    batch_size: int = 20

    def accuracy(self, fresh: Callable[[], Predictor]) -> dict[str, float]:
        """Each client's accuracy, by client; every client gets a fresh predictor."""
        return {
            client.id: self._accuracy(client, fresh()) for client in self.target if client.id in self.answers
        }

    def _accuracy(self, client: TargetClient, predictor: Predictor) -> float:
        predictions = [predictor(batch).argmax(1) for batch in client.stream(self.batch_size)]
        return (torch.cat(predictions) == self.answers[client.id]).double().mean().item()

    def of_model(self, model: nn.Module) -> dict[str, float]:
        """The mean accuracy of a model that does not adapt; for `train(evaluate=...)`."""

        def predictor(batch: Tensor) -> Tensor:
            with torch.inference_mode():
                logits: Tensor = model(batch)
            return logits

        return {"accuracy": _mean(self.accuracy(lambda: predictor))}

    def of_rates(self, model: nn.Module, rates: Rates) -> dict[str, float]:
        """The mean accuracy of a model that adapts with these rates; for `learn(evaluate=...)`."""
        return {
            mode: _mean(self.accuracy(lambda mode=mode: Personalizer(model, rates, mode=mode)))  # type: ignore[misc]
            for mode in ("batch", "online")
        }


def _mean(accuracy: dict[str, float]) -> float:
    return sum(accuracy.values()) / len(accuracy)
