"""Lessons for the guard: a source client adapts with rates that fit and with others that do not.

Its labels show what each adaptation gained, and the same figures that a guard will see show how that looks
without labels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.direction import Direction, Objective, move, probe
from ttpfl.core.gain import GAIN, RANGE, RIGHT, Past, Sums, effects, for_gain, for_range
from ttpfl.core.influence import log_sizes
from ttpfl.core.inputs import Inputs, all_finite, map_tensors, split_batch
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.learning import checked_pair
from ttpfl.core.rates import Rates
from ttpfl.core.running import RunningDirection
from ttpfl.core.running_prior import RunningPrior
from ttpfl.core.stream_change import jump_of_halves, jumps
from ttpfl.core.twin import Twin, isolated
from ttpfl.errors import noted


class Lesson(NamedTuple):
    """One way to adapt to a client's stream."""

    name: str
    change: Callable[[Tensor], Tensor]
    """Of rates that fit, to those of the lesson."""
    fits: bool = False
    """Whether this is how the rates should be used."""
    online: bool = True
    sorted: bool = False
    """Whether the stream is sorted by class. Only the exam has such a lesson: as a part of the teaching, it
    made guards worse at source clients, and the usual range of the figures excludes most of its harm."""


def _shuffled(seed: int) -> Callable[[Tensor], Tensor]:
    return lambda values: values[torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))]


def _some_flipped(values: Tensor) -> Tensor:
    return values * (1 - 2 * torch.randint(2, (len(values),), generator=torch.Generator().manual_seed(0)))


def _flipped(first: float, last: float) -> Callable[[Tensor], Tensor]:
    """Multiplies the first and the last half of the modules."""
    return lambda values: values * torch.where(torch.arange(len(values)) < len(values) // 2, first, last)


def _scaled(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda values: factor * values


_AS_LEARNED, _ALONE = _scaled(1.0), ", each batch alone"
_WRONG = {"three times too large": _scaled(3.0), "flipped": _scaled(-1.0), "shuffled": _shuffled(0)}
LESSONS = (
    Lesson("fitting", _AS_LEARNED, fits=True),
    Lesson("fitting" + _ALONE, _AS_LEARNED, fits=True, online=False),
    *(Lesson(name, change) for name, change in _WRONG.items()),
    *(Lesson(name + _ALONE, change, online=False) for name, change in _WRONG.items()),
    Lesson("0.3 times as large", _scaled(0.3)),
    Lesson("shuffled otherwise", _shuffled(1)),
    Lesson("some modules flipped", _some_flipped),
    Lesson("first modules flipped", _flipped(-1.0, 1.0)),
    Lesson("last modules flipped", _flipped(1.0, -1.0)),
    Lesson("fitting, sorted by class", _AS_LEARNED, sorted=True),
)


@dataclass
class Studied:
    """What one client knows about one lesson, by batch."""

    figures: list[Tensor | None] = field(default_factory=list)
    """None if adaptation overflowed, so that the plain model answers."""
    samples: list[int] = field(default_factory=list)
    plain_right: list[int] = field(default_factory=list)
    adapted_right: list[int] = field(default_factory=list)
    past: Past = field(default_factory=Past)

    def add(self, plain: Tensor, adapted: Tensor | None, labels: Tensor) -> None:
        """Add the logits of a batch; None for logits that overflowed."""
        answer = plain if adapted is None else adapted
        if adapted is not None:
            found = effects(plain, adapted, self.past)
            self.past = found.past
        self.figures.append(None if adapted is None else found.figures)
        self.samples.append(len(labels))
        self.plain_right.append(int((plain.argmax(1).cpu() == labels).sum()))
        self.adapted_right.append(int((answer.argmax(1).cpu() == labels).sum()))

    def gain_sums(self) -> Sums:
        """For least squares; each client has the same weight."""
        rows = [
            (figures, (adapted - plain) / samples)
            for figures, samples, plain, adapted in zip(
                self.figures, self.samples, self.plain_right, self.adapted_right, strict=True
            )
            if figures is not None
        ]
        if not rows:
            return Sums.zeros(GAIN)
        figures, gains = zip(*rows, strict=True)
        target = torch.tensor(gains, dtype=torch.float64)
        return Sums.of(for_gain(torch.stack(figures)), target, 1 / len(rows))

    def usual(self) -> Tensor:
        """Gram matrix of the features of the range."""
        figures = [one for one in self.figures if one is not None]
        if not figures:
            return Sums.zeros(RANGE).gram
        rows = for_range(torch.stack(figures))
        return rows.T @ rows


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

    @property
    def samples(self) -> int:
        """How many were studied; 0 if the model does not predict classes."""
        return sum(self.lessons[0].samples)

    def gain_sums(self) -> Sums:
        """Of all lessons that are taught."""
        total = Sums.zeros(GAIN)
        for lesson, studied in zip(LESSONS, self.lessons, strict=True):
            total += Sums.zeros(GAIN) if lesson.sorted else studied.gain_sums()
        return total

    def usual(self) -> Tensor:
        """Of all lessons that fit."""
        fitting = [
            studied.usual() for lesson, studied in zip(LESSONS, self.lessons, strict=True) if lesson.fits
        ]
        return torch.stack(fitting).sum(0)


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
    notebook, student = Notebook(), _Student(twin, rates, objective)
    with isolated():
        rooms = student.rooms(sorted_by_class=False) if classes else {}
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client"):
                inputs, labels = checked_pair(batch)
                direction = student.study(notebook, inputs, labels.cpu(), rooms)
                _measure(notebook, inputs, len(labels), direction)
            if not index:
                first = inputs
        if notebook.largest_batch and not notebook.jumps:  # there was a single batch
            notebook.jumps = jump_of_halves(twin, first, objective)
        if classes and data is not None and notebook.largest_batch:
            rooms = student.rooms(sorted_by_class=True)
            for batch in _sorted(data, notebook.largest_batch):
                inputs, labels = checked_pair(batch)
                student.study(notebook, inputs, labels.cpu(), rooms)
    return notebook


class Room(NamedTuple):
    """What a client remembers of its stream in one lesson."""

    running: RunningDirection
    prior: RunningPrior | None


Rooms = dict[int, Room]


class _Student(NamedTuple):
    """Adapts to batches in all ways at once."""

    twin: Twin
    rates: Rates
    objective: Objective

    def rooms(self, sorted_by_class: bool) -> Rooms:
        """A room for every lesson with this order, by the number of the lesson.

        A lesson that adapts like an earlier one is left out: a single rate, for example, cannot be shuffled.
        """
        prior, rooms, taught = self.rates.prior, Rooms(), set()
        for number, lesson in enumerate(LESSONS):
            way = (lesson.online, *lesson.change(self.rates.values).tolist())
            if lesson.sorted == sorted_by_class and way not in taught:
                taught.add(way)
                running_prior = RunningPrior(prior, lesson.online) if prior else None
                rooms[number] = Room(RunningDirection(lesson.online), running_prior)
        return rooms

    def study(self, notebook: Notebook, inputs: Inputs, labels: Tensor, rooms: Rooms) -> Direction:
        """Add one batch to all lessons of `rooms`, and return its direction."""
        plain, _, direction, _ = probe(self.twin, inputs, self.objective)
        with torch.no_grad():
            for number, room in rooms.items():
                room.running.add(direction)
                rates = self.rates.with_values(LESSONS[number].change(self.rates.values))
                by_module = {name: rate.to(self.twin.device) for name, rate in rates.by_module().items()}
                in_channels_last = self.twin.runner.takes_channels_last(inputs)
                moved = move(self.twin, room.running.mean, by_module, in_channels_last)
                adapted = self.twin.fast(inputs, moved)
                finite = all_finite(adapted)
                if finite and room.prior is not None:
                    adapted = room.prior.applied(adapted, by_module[LABEL_PRIOR])
                notebook.lessons[number].add(plain, adapted if finite else None, labels)
                if not number:
                    features = effects(plain, plain, Past()).right
                    notebook.right += Sums.of(features, (plain.argmax(1).cpu() == labels).double())
        return direction


def _measure(notebook: Notebook, inputs: Inputs, samples: int, direction: Direction) -> None:
    """Note how far a batch goes."""
    norms = {name: float(change.value.double().norm()) for name, change in direction.items()}
    _raise_to(notebook.norms, norms)
    notebook.largest_batch = max(notebook.largest_batch, samples)
    if 2 * samples >= notebook.largest_batch:  # the mean of a small remainder varies more
        _raise_to(notebook.jumps, jumps(direction, notebook.stream.mean))
    notebook.stream.add(direction)
    if (sizes := log_sizes(inputs)) is not None:
        notebook.sizes.append(sizes.cpu())


def _raise_to(largest: dict[str, float], values: Mapping[str, float]) -> None:
    largest.update((name, max(largest.get(name, 0.0), value)) for name, value in values.items())


def _sorted(data: Any, batch_size: int) -> Iterator[Any]:
    """Batches of a client's tensors, sorted by class."""
    labels = split_batch(data)[1]
    for rows in torch.argsort(labels, stable=True).split(batch_size):
        yield map_tensors(itemgetter(rows), data)
