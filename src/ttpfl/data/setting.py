"""What is asked of a population: kind of shift, numbers of clients, seed."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, NamedTuple, get_args

import numpy as np

from ttpfl.data.lookup import find
from ttpfl.data.partition import PARTITIONS, Partition
from ttpfl.errors import DataError


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
class Setting:
    """All choices from which, with the images, a population follows; by default the paper's for CIFAR-10.

    >>> Setting(shift="label", seed=3).partition_rule
    Step(majors=2, ratio=16.0, repeat_majors=False)
    >>> Setting(shift="labels")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: there is no shift 'labels'; did you mean 'label'? Known: none, feature, ...
    """

    shift: str = "hybrid"
    """none, feature (corruptions), label (class frequencies), hybrid (both) or domain (leave one out)."""
    source_clients: int = 240
    target_clients: int = 60
    clients_per_domain: int = 10
    """Instead of the two above, where the shift is domain."""
    held_out: str | None = None
    """The domain of the target clients, where the shift is domain."""
    samples: int | None = None
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
    quantity_skew: float = 0.0
    """Standard deviation of the logarithm of the clients' sizes; 0 makes them alike."""
    in_distribution: bool = False
    """Whether target clients have the corruptions of source clients instead of others."""
    validation: float = 0.2
    """The part of a source client's images that is kept for rates and hyper-parameters."""
    replacement: bool = False
    """Whether different clients may have the same image (never a source and a target client)."""
    frost_textures: str | None = None
    """A folder of pictures for the corruption frost, instead of the built-in texture."""
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _plain(field.name, getattr(self, field.name), field.type))
        kind = find("shift", self.shift, SHIFTS)
        for name, least in _LEAST.items():
            if (count := getattr(self, name)) is not None and count < least:
                raise DataError(f"{name} is {count}: it must be a whole number from {least}")
        if not 0 < self.validation < 1:
            raise DataError(f"validation is {self.validation}: it must lie between 0 and 1")
        if not 0 <= self.quantity_skew < 10:
            raise DataError(f"quantity_skew is {self.quantity_skew}: it must lie between 0 and 10")
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
        chosen = find("partition", default if self.partition is None else self.partition, PARTITIONS)
        known = {field.name: getattr(self, field.name) for field in fields(chosen)}
        return chosen(**known)


_LEAST = {
    "source_clients": 1,
    "target_clients": 1,
    "clients_per_domain": 1,
    "samples": 2,  # one to train with, one to validate with
    "seed": 0,
}
_WORDS = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}


def _plain(name: str, value: Any, annotation: Any) -> Any:
    """The value as JSON keeps it: numpy's numbers and paths become Python's own, but True is not a number.

    >>> _plain("ratio", np.float32(2), float), _plain("seed", np.int64(3), int)
    (2.0, 3)
    """
    kind, *optional = get_args(annotation) or (annotation,)
    if value is None and optional:
        return None
    truth = isinstance(value, (bool, np.bool_))
    good = {
        bool: truth,
        int: isinstance(value, Integral) and not truth,
        float: isinstance(value, Real) and not truth and math.isfinite(value),
        str: isinstance(value, (str, os.PathLike)),
    }
    if not good[kind]:
        raise DataError(f"{name} is {value!r}: it must be {_WORDS[kind]}")
    return os.fspath(value) if kind is str else kind(value)


def setting_of(defaults: Mapping[str, Any], choices: Mapping[str, Any]) -> Setting:
    """A data set's own defaults, with the user's choices over them; unknown names are refused.

    >>> setting_of({"ratio": 51.0}, {"seeds": 1})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: there is no choice 'seeds'; did you mean 'seed'? Known: shift, source_clients, ...
    """
    known = {field.name: field for field in fields(Setting)}
    for name in choices:
        find("choice", name, known)
    return Setting(**{**defaults, **choices})
