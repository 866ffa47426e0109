"""Loss and accuracy, summed over samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class MetricSums:
    """Sums over samples: of the loss, and of right answers.

    >>> import torch
    >>> tally = MetricSums()
    >>> tally.add(torch.eye(3), torch.tensor([0, 1, 0]), torch.tensor(0.5))
    >>> tally.samples, tally.mean_loss, tally.accuracy
    (3, 0.5, 0.6666666666666666)
    """

    samples: int = 0
    loss: float = 0.0
    right: int | None = 0
    """None if labels are not one class per sample: then nobody can say what is right."""

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Count one batch."""
        self.samples += len(labels)
        self.loss += float(loss) * len(labels)
        classes = labels.ndim == 1 and logits.ndim == 2 and not labels.is_floating_point()
        self.right = _sum(self.right, int((logits.argmax(1) == labels).sum()) if classes else None)

    def sums(self) -> dict[str, Any]:
        """As plain numbers, for `join`."""
        return {"samples": self.samples, "loss": self.loss, "right": self.right}

    def join(self, samples: int, loss: float, right: int | None = None) -> None:
        """Add the sums of another tally."""
        self.samples += samples
        self.loss += loss
        self.right = _sum(self.right, right)

    @property
    def mean_loss(self) -> float:
        """Per sample."""
        return self.loss / max(1, self.samples)

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, where that can be said."""
        return None if self.right is None else self.right / max(1, self.samples)

    def figures(self, name: str) -> dict[str, float]:
        """Means over all samples, as records have them; no accuracy where nobody can say what is right.

        >>> MetricSums(samples=4, loss=2.0, right=3).figures("train")
        {'train_loss': 0.5, 'train_accuracy': 0.75}
        """
        found = {f"{name}_loss": self.mean_loss}
        return found if self.accuracy is None else {**found, f"{name}_accuracy": self.accuracy}


class MetricSumsByName:
    """The tallies of all clients in a round, by what they are of.

    >>> tallies = MetricSumsByName()
    >>> tallies.add({"train": {"samples": 4, "loss": 2.0, "right": 3}})
    >>> tallies.summary()
    {'train_loss': 0.5, 'train_accuracy': 0.75}
    >>> tallies.add({"train": {"samples": 4, "loss": 6.0, "right": None}})  # no classification
    >>> tallies.summary()
    {'train_loss': 1.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, MetricSums] = {}

    def add(self, report: Mapping[str, Any]) -> None:
        """One client's report."""
        for name, tally in report.items():
            # Messages have no None: `right` may be missing.
            self._sums.setdefault(name, MetricSums()).join(**tally)

    def summary(self) -> dict[str, Any]:
        """Means over all samples."""
        record: dict[str, Any] = {}
        for name, total in self._sums.items():
            record |= total.figures(name)
        return record


def _sum(count: int | None, more: int | None) -> int | None:
    return None if count is None or more is None else count + more
