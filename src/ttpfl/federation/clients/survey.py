"""Whether a trained model is better than always predicting the most frequent class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from torch import Tensor

from ttpfl.core.metric_sums import MetricSums

FEWEST = 100  # samples; fewer are not enough for a conclusion


@dataclass
class Survey(MetricSums):
    """Loss, accuracy, and counts of true and of predicted classes."""

    labels: dict[str, int] = field(default_factory=dict)
    predicted: dict[str, int] = field(default_factory=dict)

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Count one batch."""
        super().add(logits, labels, loss)
        if self.right is not None:
            _add_counts(self.labels, _counts(labels))
            _add_counts(self.predicted, _counts(logits.argmax(1)))

    def join_survey(self, labels: Mapping[str, int], predicted: Mapping[str, int], **sums: Any) -> None:
        """Add another client's survey."""
        self.join(**sums)
        _add_counts(self.labels, labels)
        _add_counts(self.predicted, predicted)

    @property
    def chance(self) -> float:
        """The accuracy of always predicting the most frequent class."""
        return max(self.labels.values(), default=0) / max(1, self.samples)

    @property
    def classes(self) -> int:
        """Number of classes among labels and predictions."""
        return len(self.labels.keys() | self.predicted.keys())

    @property
    def at_chance(self) -> bool:
        """Whether the accuracy is at most two standard errors above chance; False for few samples.

        >>> Survey(1000, 2300.0, 119, {"0": 110, "1": 890}).at_chance
        True
        >>> Survey(1000, 2300.0, 140, {str(label): 100 for label in range(10)}).at_chance
        False
        """
        if self.accuracy is None or self.samples < FEWEST or len(self.labels) < 2:
            return False
        return self.accuracy <= self.chance + 2 * sqrt(self.chance * (1 - self.chance) / self.samples)

    def recorded(self) -> dict[str, Any]:
        """Plain numbers for the model file; empty if there was no validation data."""
        if not self.samples:
            return {}
        chance = {} if self.right is None else {"chance": self.chance, "at_chance": self.at_chance}
        return {"samples": self.samples, **self.figures("validation"), **chance}

    def in_words(self) -> str:
        """Accuracy compared with chance, and whether only one class is predicted."""
        text = (
            f"accuracy {self.accuracy:.1%} on {self.samples} validation samples of the source clients, "
            f"{self.chance:.1%} by always predicting the most frequent class"
        )
        first, *more = self.predicted
        return text if more else f"{text}; it predicts class {first} for every sample"


def surveyed(reports: Iterable[Mapping[str, Any]]) -> Survey:
    """The sum of all clients' surveys.

    >>> north = {"samples": 2, "loss": 1.0, "right": 1, "labels": {"0": 2}, "predicted": {"1": 2}}
    >>> surveyed([{"survey": north}, {"survey": north}])
    Survey(samples=4, loss=2.0, right=2, labels={'0': 4}, predicted={'1': 4})
    """
    total = Survey()
    for report in reports:
        total.join_survey(**report["survey"])
    return total


def _counts(classes: Tensor) -> dict[str, int]:
    values, counts = classes.unique(return_counts=True)
    return dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))


def _add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count
