"""What clients answer to rates: loss after adaptation, its slope in every rate, correct predictions."""

from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.federation.server.robust import Average

UNKNOWN = -1
"""In place of the number of correct predictions, if labels are not one class per sample."""


class Answers(NamedTuple):
    """The clients' answers to the same rates, one row per client, sorted by client."""

    clients: Tensor
    losses: Tensor
    slopes: Tensor
    samples: Tensor
    right: Tensor
    """Correct predictions, or `UNKNOWN`."""

    def of(self, clients: Tensor) -> "Answers":
        """The answers of these clients."""
        rows = torch.isin(self.clients, clients)
        return Answers(*(part[rows] for part in self))

    @property
    def accuracies(self) -> Tensor | None:
        """Accuracy of each client; None if labels are not one class per sample."""
        return None if bool((self.right == UNKNOWN).any()) else self.right / self.samples.double()

    def figures(self, name: str, average: Average) -> dict[str, float]:
        """Average loss and accuracy (if defined) over clients, as in records."""
        loss, accuracies = {f"{name}_loss": average.of_numbers(self.losses)}, self.accuracies
        return loss if accuracies is None else {**loss, f"{name}_accuracy": average.of_numbers(accuracies)}
