"""Clients that exist by themselves, such as persons, hospitals or devices, and how to hold some out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.client_arrays import ClientArrays, ClientData, check_client, described_samples
from ttpfl.data.images import DatasetInfo, Described
from ttpfl.data.samples import Rows
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import PROBABILITY, as_table, check_known, integer, one_of

UNKNOWN = -1  # the label of a sample without one
SPLITS = ("random", "recorded")

_FOLDS = 22  # random numbers that deal clients into folds: the same for every seed


@dataclass(frozen=True)
class NaturalConfig:
    """Which clients are new, and how source clients' data is split.

    >>> NaturalConfig(held_out="12, 30").held_out
    ['12', '30']
    >>> NaturalConfig(folds=5, fold=5)
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: fold must be an integer from 0 to 4, got 5
    """

    held_out: str | list[str] | None = None
    """Names of the target clients, or of a group of them, as a list or separated by commas; None takes those
    of a fold."""
    folds: Annotated[int, integer(2)] = 5
    """Parts into which clients are dealt, the same for every seed; each client is a target client in one."""
    fold: Annotated[int, integer(0)] = 0
    """The part whose clients are target clients, counted from 0."""
    split: Annotated[str, one_of(*SPLITS)] = "random"
    """How a source client's data is split: random, or recorded, with its last samples for validation."""
    validation: Annotated[float, PROBABILITY] = 0.2
    """Fraction of a source client's samples held out for rates and hyper-parameters."""
    seed: Annotated[int, integer(0)] = 0

    def __post_init__(self) -> None:
        types = {name: field.type for name, field in self.__dataclass_fields__.items()}
        for name, value in as_table("", {**self.__dict__}, types, DataError).items():
            object.__setattr__(self, name, value)
        integer(0, self.folds - 1).check(DataError, fold=self.fold)
        if isinstance(self.held_out, str):
            object.__setattr__(self, "held_out", [name.strip() for name in self.held_out.split(",")])


@dataclass(frozen=True, eq=False, repr=False)
class NaturalClients(Described):
    """Clients by name, not yet divided into source and target clients.

    >>> from ttpfl.data import dataset_info
    >>> from dataclasses import replace
    >>> info = replace(dataset_info("arrays"), classes=("rest", "walk"), shape=(3, 8))
    >>> x, y = np.zeros((6, 3, 8), np.int16), np.array([0, 1, 0, 1, 0, 1])
    >>> persons = NaturalClients(by_client(x, y, np.array([1, 1, 2, 2, 3, 3])), info)
    >>> persons
    <arrays: 3 clients, samples of 3x8, 2 classes>
    >>> list(persons.divided(NaturalConfig(held_out="2")).target)
    ['2']
    """

    clients: Mapping[str, ClientData]
    info: DatasetInfo
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of several clients, such as the usual test patients; `held_out` takes them too."""

    def __post_init__(self) -> None:
        if not self.clients:
            raise DataError(f"{self.info.name}: no clients found")
        for name, client in self.clients.items():
            check_client(client, self.info, f"client {name!r}")

    def __repr__(self) -> str:
        classes = f"{len(self.info.classes)} classes"
        return f"<{self.info.name}: {len(self.clients)} clients, {described_samples(self.info)}, {classes}>"

    def divided(self, config: NaturalConfig) -> ClientArrays:
        """Hold some clients out as target clients. Clients without labels are always target clients."""
        labelled = [name for name, client in self.clients.items() if client.y is not None]
        if config.held_out is None:
            held_out = _fold(labelled, config.folds, config.fold)
        else:
            for name in config.held_out:
                check_known("client", name, [*self.groups, *self.clients], DataError, f"of {self.info.name}")
            held_out = [one for name in config.held_out for one in self.groups.get(name, [name])]
        new = {*held_out, *(self.clients.keys() - labelled)}
        source = {name: client for name, client in self.clients.items() if name not in new}
        target = {name: client for name, client in self.clients.items() if name in new}
        if not source:
            raise DataError(f"{self.info.name}: no source client is left: hold out fewer")
        return ClientArrays(source, target, self.info)


def _fold(names: Sequence[str], folds: int, fold: int) -> list[str]:
    """The names in one of several parts of about equal size.

    >>> [len(_fold(list("abcdefg"), 3, fold)) for fold in range(3)]
    [3, 2, 2]
    """
    if not names:
        raise DataError("no client has labels: add them (the array y, or a column of labels)")
    if len(names) == 1:
        raise DataError("there is one client with labels: at least two are needed, to hold one out")
    if len(names) < folds:
        raise DataError(f"folds is {folds}, but only {len(names)} clients have labels: use fewer")
    order = np.random.default_rng(_FOLDS).permutation(len(names))
    return [names[number] for number in np.array_split(order, folds)[fold]]


def by_client(
    x: NDArray[Any], y: NDArray[np.int64], client: NDArray[Any], names: Sequence[str] | None = None
) -> dict[str, ClientData]:
    """The samples of each client in their order, by the client's number or name; `names` names numbers.

    A client whose labels are all -1 has none.

    >>> data = by_client(np.array([[5], [6], [7]]), np.array([0, -1, 1]), np.array(["b", "a", "b"]))
    >>> list(data), np.asarray(data["b"].x)[:, 0], data["a"].y
    (['a', 'b'], array([5, 7]), None)
    """
    order = np.argsort(client, kind="stable")
    in_order = client[order]
    starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]) if len(client) else [])
    rows = np.split(order, starts[1:])
    named = [str(value) if names is None else names[int(value)] for value in in_order[starts].tolist()]
    return {
        name: ClientData(Rows(x, own), _labels(name, y[own])) for name, own in zip(named, rows, strict=False)
    }


def _labels(name: str, y: NDArray[np.int64]) -> NDArray[np.int64] | None:
    unknown = int((y == UNKNOWN).sum())
    if unknown and unknown < len(y):
        raise DataError(
            f"client {name!r} has {unknown} samples without and {len(y) - unknown} with a label: "
            "label all samples, or none of a target client's"
        )
    return None if unknown else y


def known_labels(*parts: Mapping[str, ClientData]) -> Iterator[NDArray[np.int64]]:
    """The labels of all clients that have some."""
    return (client.y for part in parts for client in part.values() if client.y is not None)
