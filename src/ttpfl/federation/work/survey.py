"""Whether a trained model knows more than which class is the commonest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from torch import Tensor

from ttpfl.core.metric_sums import MetricSums

FEWEST = 100  # samples; of fewer, nothing can be said


@dataclass
class Survey(MetricSums):
    """Loss and accuracy, and how often each class is true and how often it is predicted."""

    labels: dict[str, int] = field(default_factory=dict)
    predicted: dict[str, int] = field(default_factory=dict)

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Count one batch."""
        super().add(logits, labels, loss)
        if self.right is not None:
            _count(self.labels, _counts(labels))
            _count(self.predicted, _counts(logits.argmax(1)))

    def join_survey(self, labels: Mapping[str, int], predicted: Mapping[str, int], **sums: Any) -> None:
        """Add what another client found."""
        self.join(**sums)
        _count(self.labels, labels)
        _count(self.predicted, predicted)

    @property
    def chance(self) -> float:
        """The accuracy of always predicting the commonest class."""
        return max(self.labels.values(), default=0) / max(1, self.samples)

    @property
    def classes(self) -> int:
        """How many there are, as far as labels and predictions show."""
        return len(self.labels.keys() | self.predicted.keys())

    @property
    def at_chance(self) -> bool:
        """Whether the accuracy is at most two standard errors above chance; not said of few samples.

        >>> Survey(1000, 2300.0, 119, {"0": 110, "1": 890}).at_chance
        True
        >>> Survey(1000, 2300.0, 140, {str(label): 100 for label in range(10)}).at_chance
        False
        """
        if self.accuracy is None or self.samples < FEWEST or len(self.labels) < 2:
            return False
        return self.accuracy <= self.chance + 2 * sqrt(self.chance * (1 - self.chance) / self.samples)

    def recorded(self) -> dict[str, Any]:
        """Plain numbers, to be kept with the model; nothing if there was no validation data."""
        if not self.samples:
            return {}
        chance = {} if self.right is None else {"chance": self.chance, "at_chance": self.at_chance}
        return {"samples": self.samples, **self.figures("validation"), **chance}

    def in_words(self) -> str:
        """How good the model is, and what it does instead."""
        said = (
            f"accuracy {self.accuracy:.1%} on {self.samples} validation samples of the source clients, "
            f"{self.chance:.1%} by always predicting the commonest class"
        )
        first, *more = self.predicted
        return said if more else f"{said}; it predicts class {first} for every sample"


def surveyed(reports: Iterable[Mapping[str, Any]]) -> Survey:
    """All clients' surveys as one.

    >>> north = {"samples": 2, "loss": 1.0, "right": 1, "labels": {"0": 2}, "predicted": {"1": 2}}
    >>> surveyed([{"survey": north}, {"survey": north}])
    Survey(samples=4, loss=2.0, right=2, labels={'0': 4}, predicted={'1': 4})
    """
    total = Survey()
    for report in reports:
        total.join_survey(**report["survey"])
    return total


def _counts(classes: Tensor) -> dict[str, int]:
    found, counts = classes.unique(return_counts=True)
    return {str(name): count for name, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _count(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count
