"""A class-balanced memory of recent, confident samples (RoTTA)."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Item(NamedTuple):
    """A sample in memory."""

    sample: Any
    label: int  # predicted
    uncertainty: float  # entropy of the prediction
    born: int  # clock at arrival


@dataclass
class BalancedMemory:
    """Keeps at most `capacity` samples of a stream, by predicted class, age and uncertainty.

    A new sample replaces the worst one (old and uncertain) of its class or, if its class has fewer samples
    than its share of a full memory, of the largest classes. It is dropped if all of these are better.

    >>> memory = BalancedMemory(capacity=2, classes=2)
    >>> for sample in "abc":
    ...     memory.add(sample, label=0, uncertainty=0.1)
    >>> [item.sample for item in memory.items]
    ['c']
    >>> memory.ages()
    [0.5]
    """

    capacity: int
    classes: int
    items: list[Item] = field(default_factory=list)
    clock: int = 0

    def add(self, sample: Any, label: int, uncertainty: float) -> None:
        """Offer one sample and advance the clock."""
        new = Item(sample, label, uncertainty, self.clock)
        counts = Counter(item.label for item in self.items)
        full: set[int] = set()  # classes in which a sample is replaced
        if counts[label] >= self.capacity / self.classes:
            full = {label}
        elif len(self.items) >= self.capacity:
            full = {other for other, count in counts.items() if count == max(counts.values())}
        places = [place for place, item in enumerate(self.items) if item.label in full]
        worst = max(places, key=lambda place: (self._score(self.items[place]), place), default=None)
        if worst is None:
            self.items.append(new)
        elif self._score(self.items[worst]) > self._score(new):
            del self.items[worst]
            self.items.append(new)
        self.clock += 1

    def ages(self) -> list[float]:
        """The age of each sample in samples, divided by the capacity."""
        return [(self.clock - item.born) / self.capacity for item in self.items]

    def copy(self) -> "BalancedMemory":
        """A memory with the same samples."""
        return BalancedMemory(self.capacity, self.classes, list(self.items), self.clock)

    def _score(self, item: Item) -> float:
        age = (self.clock - item.born) / self.capacity
        return 1 / (1 + math.exp(-age)) + item.uncertainty / math.log(self.classes)
