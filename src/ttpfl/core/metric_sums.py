"""Sums of loss and accuracy over samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class MetricSums:
    """Sums over samples: loss and correct predictions.

    >>> import torch
    >>> sums = MetricSums()
    >>> sums.add(torch.eye(3), torch.tensor([0, 1, 0]), torch.tensor(0.5))
    >>> sums.samples, sums.mean_loss, sums.accuracy
    (3, 0.5, 0.6666666666666666)
    """

    samples: int = 0
    loss: float = 0.0
    right: int | None = 0
    """Correct predictions; None if labels are not one class per sample."""

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Add one batch, with its mean loss."""
        classes = labels.ndim == 1 and logits.ndim == 2 and not labels.is_floating_point()
        right = int((logits.argmax(1) == labels).sum()) if classes else None
        self.join(len(labels), float(loss) * len(labels), right)

    def sums(self) -> dict[str, Any]:
        """Plain numbers, for `join`."""
        return {"samples": self.samples, "loss": self.loss, "right": self.right}

    def join(self, samples: int, loss: float, right: int | None = None) -> None:
        """Add other sums."""
        self.samples += samples
        self.loss += loss
        self.right = None if self.right is None or right is None else self.right + right

    @property
    def mean_loss(self) -> float:
        """Loss per sample."""
        return self.loss / max(1, self.samples)

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions; None if labels are not one class per sample."""
        return None if self.right is None else self.right / max(1, self.samples)

    def figures(self, name: str) -> dict[str, float]:
        """Mean loss and accuracy (if defined), as in records.

        >>> MetricSums(samples=4, loss=2.0, right=3).figures("train")
        {'train_loss': 0.5, 'train_accuracy': 0.75}
        """
        loss = {f"{name}_loss": self.mean_loss}
        return loss if self.accuracy is None else {**loss, f"{name}_accuracy": self.accuracy}


class MetricSumsByName:
    """Metric sums over all clients of a round, by name, such as "train".

    >>> sums = MetricSumsByName()
    >>> sums.add({"train": {"samples": 4, "loss": 2.0, "right": 3}})
    >>> sums.summary()
    {'train_loss': 0.5, 'train_accuracy': 0.75}
    >>> sums.add({"train": {"samples": 4, "loss": 6.0, "right": None}})  # no classification
    >>> sums.summary()
    {'train_loss': 1.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, MetricSums] = {}

    def add(self, report: Mapping[str, Any]) -> None:
        """Add one client's report."""
        for name, sums in report.items():
            # Messages have no None: `right` may be missing.
            self._sums.setdefault(name, MetricSums()).join(**sums)

    def summary(self) -> dict[str, Any]:
        """Means over all samples."""
        return {key: mean for name, sums in self._sums.items() for key, mean in sums.figures(name).items()}
