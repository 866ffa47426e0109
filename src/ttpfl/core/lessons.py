"""Lessons for the guard: a source client adapts with rates that fit and with others that do not.

Its labels show what each adaptation gained, and the same figures that a guard will see show how that looks
without labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.direction import Objective, move, probe
from ttpfl.core.gain import GAIN, RIGHT, Coefficients, Past, Sums, effects, remembered
from ttpfl.core.influence import log_sizes
from ttpfl.core.inputs import Inputs, all_finite, map_tensors, split_batch
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.learning import checked_pair
from ttpfl.core.rates import Rates
from ttpfl.core.running import RunningDirection
from ttpfl.core.stream_change import jumps
from ttpfl.core.twin import Twin, isolated
from ttpfl.errors import noted


class Lesson(NamedTuple):
    """One way to adapt to a client's stream."""

    name: str
    factor: float = 1.0
    """Of all rates."""
    shuffled: bool = False
    """Whether modules exchange their rates."""
    online: bool = True
    sorted: bool = False
    """Whether the stream is sorted by class."""

    @property
    def fits(self) -> bool:
        """Whether this is how the rates should be used."""
        return self.factor == 1.0 and not (self.shuffled or self.sorted)

    def values(self, rates: Rates) -> Tensor:
        """The rates to adapt with."""
        if not self.shuffled:
            return self.factor * rates.values
        order = torch.randperm(len(rates.values), generator=torch.Generator().manual_seed(0))
        return rates.values[order]


LESSONS = (
    Lesson("fitting, online"),
    Lesson("fitting, each batch alone", online=False),
    Lesson("three times too large", factor=3.0),
    Lesson("flipped", factor=-1.0),
    Lesson("shuffled", shuffled=True),
    Lesson("fitting, sorted by class", sorted=True),
)


@dataclass
class Studied:
    """What one client knows about one lesson: features of its changed predictions, and their gain."""

    features: list[Tensor] = field(default_factory=list)
    gains: list[Tensor] = field(default_factory=list)
    """One tensor per batch."""
    past: Past = field(default_factory=Past)
    plain_right: int = 0
    adapted_right: int = 0

    def sums(self) -> Sums:
        """For least squares."""
        if not self.features:
            return Sums.zeros(GAIN)
        return Sums.of(torch.cat(self.features), torch.cat(self.gains))

    def gained(self, coefficients: Coefficients) -> tuple[float, float]:
        """Estimated gain at the end, and the lowest one at the end of any batch (or 0)."""
        if not self.features:
            return 0.0, 0.0
        end = total = lowest = 0.0
        for part in self.features:
            gained = float((part @ coefficients.gain).sum())
            end, total = end + gained, remembered(total, gained)
            lowest = min(lowest, total)
        return end, lowest


@dataclass
class Notebook:
    """Everything that one client has to say about its data and the lessons."""

    norms: dict[str, float] = field(default_factory=dict)
    """Largest norm of each module's direction."""
    jumps: dict[str, float] = field(default_factory=dict)
    """Largest distance of each module's direction from the mean of the batches before."""
    stream: RunningDirection = field(default_factory=lambda: RunningDirection(online=True))
    sizes: list[Tensor] = field(default_factory=list)
    largest_batch: int = 0
    right: Sums = field(default_factory=lambda: Sums.zeros(RIGHT))
    """Of the plain model's predictions being right."""
    lessons: list[Studied] = field(default_factory=lambda: [Studied() for _ in LESSONS])

    @property
    def spread(self) -> float:
        """Largest distance of a sample's log size from the median."""
        if not self.sizes:
            return 0.0
        sizes = torch.cat(self.sizes)
        return float((sizes - sizes.median()).abs().max())


def studied(
    twin: Twin, rates: Rates, batches: Iterable[Any], data: Any, objective: Objective, classes: bool
) -> Notebook:
    """Work through all lessons.

    Args:
        twin: the model.
        rates: rates that fit.
        batches: the client's batches.
        data: the same samples as tensors, to sort them by class; None skips that lesson.
        objective: maps logits to the unsupervised loss.
        classes: whether the model predicts classes; else only norms and sizes are measured.
    """
    notebook, batch_size = Notebook(), 0
    with isolated():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client"):
                inputs, labels = checked_pair(batch)
                if not index:
                    batch_size, rooms = len(labels), _rooms(rates, sorted_by_class=False)
                _study(notebook, twin, rates, inputs, labels, objective, rooms if classes else {})
        if classes and data is not None and batch_size:
            rooms = _rooms(rates, sorted_by_class=True)
            for batch in _sorted(data, batch_size):
                inputs, labels = checked_pair(batch)
                _study(notebook, twin, rates, inputs, labels, objective, rooms, measured=False)
    return notebook


Rooms = dict[int, RunningDirection]


def _rooms(rates: Rates, sorted_by_class: bool) -> Rooms:
    """A running direction for every lesson with this order, by the number of the lesson."""
    return {
        number: RunningDirection(lesson.online, rates.prior)
        for number, lesson in enumerate(LESSONS)
        if lesson.sorted == sorted_by_class
    }


def _study(
    notebook: Notebook,
    twin: Twin,
    rates: Rates,
    inputs: Inputs,
    labels: Tensor,
    objective: Objective,
    rooms: Rooms,
    measured: bool = True,
) -> None:
    """Add one batch to all lessons of `rooms`."""
    plain, _, direction, _ = probe(twin, inputs, objective)
    if measured:
        tensors = {name: change for name, change in direction.items() if name != LABEL_PRIOR}
        _raise_to(
            notebook.norms, {name: float(change.value.double().norm()) for name, change in tensors.items()}
        )
        _raise_to(notebook.jumps, jumps(tensors, notebook.stream.mean))
        notebook.stream.add(tensors)
        notebook.largest_batch = max(notebook.largest_batch, len(labels))
        if (sizes := log_sizes(inputs)) is not None:
            notebook.sizes.append(sizes.cpu())
    with torch.no_grad():
        for number, running in rooms.items():
            running.add(direction)
            by_module = rates.with_values(LESSONS[number].values(rates)).by_module()
            moved_rates = {name: by_module[name].to(twin.device) for name in direction}
            moved = move(twin, running.current(), moved_rates, twin.runner.takes_channels_last(inputs))
            adapted = twin.fast(inputs, moved)
            if all_finite(adapted):  # else a personalizer predicts with the plain model
                _add(notebook, number, plain, adapted, labels)


def _raise_to(largest: dict[str, float], values: Mapping[str, float]) -> None:
    largest.update((name, max(largest.get(name, 0.0), value)) for name, value in values.items())


def _add(notebook: Notebook, number: int, plain: Tensor, adapted: Tensor, labels: Tensor) -> None:
    lesson, truth = notebook.lessons[number], labels.cpu()
    batch = effects(plain, adapted, lesson.past)
    before, after = (logits.argmax(1).cpu() == truth for logits in (plain, adapted))
    changed = batch.changed.bool()
    lesson.features.append(batch.gain[changed])
    lesson.gains.append((after.double() - before.double())[changed])
    lesson.past = batch.past
    lesson.plain_right += int(before.sum())
    lesson.adapted_right += int(after.sum())
    if not number:
        notebook.right += Sums.of(batch.right, before.double())


def _sorted(data: Any, batch_size: int) -> Iterator[Any]:
    """Batches of a client's tensors, sorted by class."""
    labels = split_batch(data)[1]
    for rows in torch.argsort(labels, stable=True).split(batch_size):
        yield map_tensors(itemgetter(rows), data)
