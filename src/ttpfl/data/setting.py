"""What is asked of a population: kind of shift, numbers of clients, seed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

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
        kind = find("shift", self.shift, SHIFTS)
        for name in ("source_clients", "target_clients", "clients_per_domain", "samples"):
            count = getattr(self, name)
            if count is not None and (not isinstance(count, int) or count < 1):
                raise DataError(f"{name} is {count!r}: it must be a whole number from 1")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise DataError(f"seed is {self.seed!r}: it must be a whole number from 0")
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
        chosen = find("partition", self.partition or default, PARTITIONS)
        known = {field.name: getattr(self, field.name) for field in fields(chosen)}
        return chosen(**known)


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
