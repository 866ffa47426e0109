"""What is asked of a population: kind of shift, numbers of clients, seed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple

import numpy as np

from ttpfl._moved import renamed
from ttpfl.data.partition import PARTITIONS, Partition
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import PROBABILITY, as_type, check_known, find, integer, number

Count = Annotated[int, integer(1)]


class Shift(NamedTuple):
    """In what clients differ from each other, and target clients from source clients."""

    labels: bool
    features: bool
    domains: bool


SHIFTS = {
    "none": Shift(labels=False, features=False, domains=False),
    "feature": Shift(labels=False, features=True, domains=False),
    "label": Shift(labels=True, features=False, domains=False),
    "hybrid": Shift(labels=True, features=True, domains=False),
    "domain": Shift(labels=True, features=False, domains=True),
}


@dataclass(frozen=True)
class PopulationConfig:
    """All choices from which, with the images, a population follows; by default the paper's for CIFAR-10.

    >>> PopulationConfig(shift="label", seed=3).partition_rule
    Step(majors=2, ratio=16.0, repeat_majors=False)
    >>> PopulationConfig(shift="labels")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown shift 'labels'; did you mean 'label'? Available: none, feature, ...
    """

    shift: str = "hybrid"
    """none, feature (corruptions), label (class frequencies), hybrid (both) or domain (leave one out)."""
    source_clients: Count = 240
    target_clients: Count = 60
    clients_per_domain: Count = 10
    """Instead of the two above, where the shift is domain."""
    held_out: str | None = None
    """The domain of the target clients, where the shift is domain."""
    samples: Annotated[int, integer(2)] | None = None  # one to train with, one to validate with
    """Images of each client; None deals out all there are (with replacement: 200)."""
    partition: str | None = None
    """step, dirichlet, stratified or iid; None means step where the shift is in the labels, and iid else."""
    majors: int = 2
    """Step: frequent classes of each client."""
    ratio: float = 16.0
    """Step: how much more frequent they are."""
    repeat_majors: bool = False
    """Step: all ordered tuples of classes as in the authors' implementation, also with a class twice."""
    alpha: float = 0.5
    """Dirichlet: small is uneven."""
    quantity_skew: Annotated[float, number("of at least 0 and below 10", lambda skew: 0 <= skew < 10)] = 0.0
    """Standard deviation of the logarithm of the clients' sizes; 0 makes them alike."""
    in_distribution: bool = False
    """Whether target clients have the corruptions of source clients instead of others."""
    validation: Annotated[float, PROBABILITY] = 0.2
    """The part of a source client's images that is kept for rates and hyper-parameters."""
    replacement: bool = False
    """Whether different clients may have the same image (never a source and a target client)."""
    frost_textures: str | None = None
    """A folder of pictures for the corruption frost, instead of the built-in texture."""
    seed: Annotated[int, integer(0)] = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = as_type(field.name, _plain(getattr(self, field.name)), field.type, DataError)
            object.__setattr__(self, field.name, value)
        kind = find("shift", self.shift, SHIFTS, DataError)
        if self.held_out is not None and not kind.domains:
            raise DataError(
                f"held_out is {self.held_out!r}, but the shift is {self.shift}: use shift='domain'"
            )
        _ = self.partition_rule  # its own checks

    @property
    def kind(self) -> Shift:
        """In what clients differ."""
        return SHIFTS[self.shift]

    @property
    def partition_rule(self) -> Partition:
        """How classes are spread."""
        default = "step" if self.kind.labels else "iid"
        chosen = find(
            "partition", default if self.partition is None else self.partition, PARTITIONS, DataError
        )
        known = {field.name: getattr(self, field.name) for field in fields(chosen)}
        return chosen(**known)


def _plain(value: Any) -> Any:
    """The value as JSON keeps it: numpy's numbers and paths become Python's own.

    >>> _plain(np.float32(2)), _plain(np.int64(3))
    (2.0, 3)
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def config_of(defaults: Mapping[str, Any], choices: Mapping[str, Any]) -> PopulationConfig:
    """A data set's own defaults, with the user's choices over them; unknown names are refused.

    >>> config_of({"ratio": 51.0}, {"seeds": 1})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown population option 'seeds'; did you mean 'seed'? Available: shift, ...
    """
    known = [field.name for field in fields(PopulationConfig)]
    for name in choices:
        check_known("population option", name, known, DataError)
    return PopulationConfig(**{**defaults, **choices})


__getattr__ = renamed(__name__, {"Setting": "PopulationConfig"})
