"""Clients: source clients with labels, target clients without."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttpfl._moved import renamed
from ttpfl.data.augmentation import augment
from ttpfl.data.images import DatasetInfo, Described
from ttpfl.data.partition import Ids
from ttpfl.data.plan import Applied, split
from ttpfl.data.samples import as_input
from ttpfl.errors import DataError, noted
from ttpfl.util.settings_kit import integer

Item = TypeVar("Item")
Labels = NDArray[np.int64]
Part = Literal["train", "validation"]


class Labelled(NamedTuple):
    """Normalised samples and their classes."""

    x: Tensor
    y: Tensor


def evenly(clients: Sequence[Item], count: int) -> list[Item]:
    """`count` evenly spaced clients, because neighbours may share a domain; all if there are fewer.

    >>> evenly("aabbcc", 3)
    ['a', 'b', 'c']
    """
    count = min(count, len(clients))
    return [clients[len(clients) * number // count] for number in range(count)]


@dataclass(frozen=True, eq=False)
class Client(Described):
    """What all clients have in common. Samples are produced on demand and not kept."""

    id: str
    domain: str
    corruption: Applied | None
    info: DatasetInfo
    take: Callable[[Ids], NDArray[Any]]
    """Returns samples by their ids, as stored: images as uint8."""

    def tensor(self, ids: Ids) -> Tensor:
        """The samples `ids`, normalised for a network."""
        with noted(f"at client {self.id!r}"):
            return as_input(self.take(ids), self.info, ids.tolist())


@dataclass(frozen=True, eq=False)
class SourceClient(Client):
    """A client with labels: training data, and validation data to learn rates with."""

    train_ids: Ids
    train_labels: Labels
    validation_ids: Ids
    validation_labels: Labels

    def size(self, part: Part) -> int:
        """The number of samples in a part, without loading them."""
        return len(self.train_ids if part == "train" else self.validation_ids)

    def train(self) -> Labelled:
        """Training data, augmented with torch's global generator if the data set asks for it."""
        images = self.tensor(self.train_ids)
        if name := self.info.augmentation:
            mean, std = (torch.tensor(three).view(3, 1, 1) for three in (self.info.mean, self.info.std))
            images = (augment(name, images * std + mean) - mean) / std
        return Labelled(images, torch.from_numpy(self.train_labels))

    def validation(self) -> Labelled:
        """Validation data, for rates and hyper-parameters."""
        return Labelled(self.tensor(self.validation_ids), torch.from_numpy(self.validation_labels))


def source_client(ids: Ids, labels: Labels, validation: float, **common: Any) -> SourceClient:
    """A source client with the images `ids`, split for validation. `labels` are those of all images."""
    train, held_out = split(ids, validation)
    return SourceClient(
        **common,
        train_ids=train,
        train_labels=labels[train],
        validation_ids=held_out,
        validation_labels=labels[held_out],
    )


@dataclass(frozen=True, eq=False)
class TargetClient(Client):
    """A new client: a stream of images. No labels can be reached from it."""

    ids: Ids
    shuffled: bool = False
    """Whether `ids` are in random order instead of the order of recording."""

    def __len__(self) -> int:
        return len(self.ids)

    def stream(self, batch_size: int) -> Iterator[Tensor]:
        """Its images in order, in batches of `batch_size`; the last batch may be smaller."""
        integer(1).check(DataError, batch_size=batch_size)
        for start in range(0, len(self.ids), batch_size):
            yield self.tensor(self.ids[start : start + batch_size])


C = TypeVar("C", bound=Client)


class Clients(Sequence[C]):
    """Clients that are created on access, so that even a million of them take no memory."""

    def __init__(self, count: int, make: Callable[[int], C]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> C: ...
    @overload
    def __getitem__(self, index: slice) -> list[C]: ...
    def __getitem__(self, index: int | slice) -> C | list[C]:
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(self._count))]
        return self._make(range(self._count)[index])


@dataclass(frozen=True, eq=False, repr=False)
class Population(Described):
    """All clients of an experiment.

    >>> from ttpfl.data import federate
    >>> population, target_labels, _ = federate("digits", shift="domain", held_out="uci", seed=0)
    >>> population
    <Population of digits: 30 source clients, 10 target clients>
    >>> client = population.source[0]
    >>> client.id, client.domain, client.train().x.shape
    ('source-0', 'mnist', torch.Size([201, 3, 28, 28]))
    >>> new = population.target[3]
    >>> [len(batch) for batch in new.stream(batch_size=80)], len(target_labels[new.id])
    ([80, 80, 20], 180)
    """

    source: Sequence[SourceClient]
    target: Sequence[TargetClient]
    info: DatasetInfo

    def __repr__(self) -> str:
        sizes = f"{len(self.source)} source clients, {len(self.target)} target clients"
        return f"<Population of {self.info.name}: {sizes}>"


class TargetLabels(Mapping[str, Tensor]):
    """The labels of target clients by client id, for evaluation only.

    Clients without known labels are left out.
    """

    def __init__(
        self, target: Sequence[TargetClient], labels: Callable[[TargetClient], Labels | None]
    ) -> None:
        self._target, self._labels = target, labels

    def of(self, client: TargetClient) -> Labels | None:
        """The labels of a client's images in stream order, or None if they are unknown."""
        return self._labels(client)

    @cached_property
    def _number(self) -> dict[str, int]:
        clients = enumerate(self._target)
        return {client.id: number for number, client in clients if self.of(client) is not None}

    def __getitem__(self, name: str) -> Tensor:
        labels = self.of(self._target[self._number[name]])
        assert labels is not None  # `_number` lists only clients with labels
        return torch.tensor(labels)  # a copy, so that callers cannot change the labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._number)

    def __len__(self) -> int:
        return len(self._number)


__getattr__ = renamed(__name__)
