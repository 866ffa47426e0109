"""Loss and accuracy, summed over samples."""

from dataclasses import dataclass

from torch import Tensor

from ttpfl.federation.state import Record, Report


@dataclass
class Tally:
    """Sums over samples: of the loss, and of right answers."""

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

    @property
    def mean_loss(self) -> float:
        """Per sample."""
        return self.loss / max(1, self.samples)


class Tallies:
    """The tallies of all clients in a round, by what they are of.

    >>> tallies = Tallies()
    >>> tallies.add({"train": {"samples": 4, "loss": 2.0, "right": 3}})
    >>> tallies.summary()
    {'train_loss': 0.5, 'train_accuracy': 0.75}
    >>> tallies.add({"train": {"samples": 4, "loss": 6.0, "right": None}})  # no classification
    >>> tallies.summary()
    {'train_loss': 1.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tally] = {}

    def add(self, report: Report) -> None:
        """One client's report."""
        for name, tally in report.items():
            total = self._sums.setdefault(name, Tally())
            total.samples += tally["samples"]
            total.loss += tally["loss"]
            total.right = _sum(total.right, tally.get("right"))  # messages have no None

    def summary(self) -> Record:
        """Means over all samples; no accuracy where nobody can say what is right."""
        record: Record = {}
        for name, total in self._sums.items():
            record[f"{name}_loss"] = total.mean_loss
            if total.right is not None:
                record[f"{name}_accuracy"] = total.right / max(1, total.samples)
        return record


def _sum(count: int | None, more: int | None) -> int | None:
    return None if count is None or more is None else count + more
