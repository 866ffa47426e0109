"""The configuration of a population: kind of shift, numbers of clients, seed."""

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
    """How clients differ from each other, and target clients from source clients."""

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
    """All settings that, with the images, determine a population. Defaults: the paper's for CIFAR-10.

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
    """For domain shift, instead of the two above."""
    held_out: str | None = None
    """For domain shift: the domain of the target clients."""
    samples: Annotated[int, integer(2)] | None = None  # training and validation
    """Images of each client; None deals out all images (with replacement: 200)."""
    partition: str | None = None
    """step, dirichlet, stratified or iid; None means step if the shift is in the labels, otherwise iid."""
    majors: int = 2
    """Step: frequent classes of each client."""
    ratio: float = 16.0
    """Step: how many times more frequent they are."""
    repeat_majors: bool = False
    """Step: all ordered tuples of classes, even with repeated classes, as in the authors' implementation."""
    alpha: float = 0.5
    """Dirichlet: concentration; small values are uneven."""
    quantity_skew: Annotated[float, number("of at least 0 and below 10", lambda skew: 0 <= skew < 10)] = 0.0
    """Standard deviation of the logarithm of the clients' sizes; 0 means equal sizes."""
    in_distribution: bool = False
    """Whether target clients have the same corruptions as source clients."""
    validation: Annotated[float, PROBABILITY] = 0.2
    """Fraction of a source client's images held out for rates and hyper-parameters."""
    replacement: bool = False
    """Whether clients can share images (never a source and a target client)."""
    frost_textures: str | None = None
    """Folder of images for the corruption frost, instead of the built-in texture."""
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
        _ = self.partition_rule  # has further checks

    @property
    def kind(self) -> Shift:
        """How clients differ."""
        return SHIFTS[self.shift]

    @property
    def partition_rule(self) -> Partition:
        """How classes are spread."""
        default = "step" if self.kind.labels else "iid"
        name = default if self.partition is None else self.partition
        rule = find("partition", name, PARTITIONS, DataError)
        return rule(**{field.name: getattr(self, field.name) for field in fields(rule)})


def _plain(value: Any) -> Any:
    """The value as JSON stores it: numpy scalars and paths become Python's own types.

    >>> _plain(np.float32(2)), _plain(np.int64(3))
    (2.0, 3)
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def config_of(defaults: Mapping[str, Any], choices: Mapping[str, Any]) -> PopulationConfig:
    """A data set's defaults, overridden by the user's choices; unknown names are errors.

    >>> config_of({"ratio": 51.0}, {"seeds": 1})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown population option 'seeds'; did you mean 'seed'? Available: shift, ...
    """
    names = [field.name for field in fields(PopulationConfig)]
    for name in choices:
        check_known("population option", name, names, DataError)
    return PopulationConfig(**{**defaults, **choices})


__getattr__ = renamed(__name__)
