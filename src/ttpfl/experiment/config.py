"""All settings of one case: data, network, training, rates, tuning and test."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Self, get_type_hints

from ttpfl.data.manifest import as_json
from ttpfl.data.own_clients import client_option_types
from ttpfl.data.registry import client_choices, options
from ttpfl.errors import RecipeError, noted
from ttpfl.evaluation.streams import ORDERS
from ttpfl.federation.settings import (
    LearnSettings,
    TrainSettings,
    choice,
    takes_old_names,
    with_new_names,
)
from ttpfl.util.settings_kit import Rule, as_table, integer, one_of

Tree = dict[str, Any]
"""Nested tables, as in TOML."""

SEEDED = "seed"
NO_KEYS = (SEEDED, "workers")  # set by the recipe's seeds and by `ttpfl run --workers`


@dataclass(frozen=True)
class Data:
    """A data set, its options, and the population options that differ from the defaults.

    These are fields of `PopulationConfig` or, for clients that exist by themselves, of `NaturalConfig`.
    """

    name: str = "cifar10"
    """One of `ttpfl data list`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the data set, such as `image_size`; `ttpfl data info` lists them."""
    choices: Mapping[str, Any] = field(default_factory=dict)

    def explicit(self) -> Tree:
        """The explicit settings, as in a recipe."""
        return {"options": dict(self.options), **self.choices}

    def defaults(self) -> Tree:
        """The defaults of all settings."""
        choices = client_choices(self.name)
        del choices[SEEDED]
        return {"options": as_json(options(self.name)), **choices}


@dataclass(frozen=True)
class Model:
    """A network, with random weights or those of a file."""

    name: str = "shallow_cnn"
    """shallow_cnn, resnet18 or resnet50 for images; signal_cnn, beat_cnn or sequence_transformer for
    signals; mlp for tables; or your own as package.module:function."""
    weights: str | None = None
    """A file in the data directory, or a path."""


@dataclass(frozen=True)
class Tune:
    """Tune baselines' hyper-parameters on this many source clients; 0 uses the defaults."""

    clients: Annotated[int, integer(0)] = 0
    """Source clients to tune on, evenly spread over all."""


@dataclass(frozen=True)
class Test:
    """The streams of target clients."""

    batch_size: Annotated[int, integer(1)] = 20
    """Images per batch."""
    order: Annotated[str, one_of(*ORDERS)] = "iid"
    """iid (random), recorded, label-sorted or mixed."""


@takes_old_names
@dataclass(frozen=True)
class Learn(LearnSettings):
    """Rate learning, on the global model or by cross-fitting.

    >>> Learn(cross_fit=1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: cross_fit must be 0, or an integer of at least 2, got 1
    """

    cross_fit: int = choice(
        0,
        "parts of the source clients; each learns rates with a model trained on the others. 0 disables it",
        Rule("0, or an integer of at least 2", lambda parts: integer(0).holds(parts) and parts != 1),
    )


SECTIONS: dict[str, type[Any]] = {
    "data": Data,
    "model": Model,
    "train": TrainSettings,
    "learn": Learn,
    "tune": Tune,
    "test": Test,
}


@dataclass(frozen=True)
class Config:
    """Everything that determines the results of one case and seed, except the compared methods.

    >>> config = Config.of({"data": {"name": "digits", "shift": "label"}, "train": {"rounds": 2}}, seed=1)
    >>> config.train.rounds, config.train.seed, config.data.choices
    (2, 1, {'shift': 'label'})
    >>> Config.of({"train": {"round": 2}}, seed=0)
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: unknown key 'round' in train; did you mean 'rounds'? Available: rounds, ...
    """

    seed: int
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    train: TrainSettings = field(default_factory=TrainSettings)
    learn: Learn = field(default_factory=Learn)
    tune: Tune = field(default_factory=Tune)
    test: Test = field(default_factory=Test)

    @classmethod
    def of(cls, tree: Tree, seed: int) -> Self:
        """Read the sections of a recipe; missing keys have their defaults."""
        parts: dict[str, Any] = {}
        for name, kind in SECTIONS.items():
            values = checked(name, tree.get(name, {}))
            if name == "data":
                named: Tree = {key: values.pop(key) for key in ("name", "options") if key in values}
                values = {**named, "choices": values}
            elif SEEDED in kind.__dataclass_fields__:
                values[SEEDED] = seed
            with located(name):
                parts[name] = kind(**values)
        return cls(seed=seed, **parts)

    def flat(self) -> dict[str, Any]:
        """All values by the keys of `--set`, including defaults.

        >>> Config.of({"data": {"name": "cifar100"}}, seed=0).flat()["data.ratio"]
        51.0
        """
        tree = {name: asdict(getattr(self, name)) for name in SECTIONS}
        tree["data"] = {"name": self.data.name, **merged(self.data.defaults(), self.data.explicit())}
        return {
            f"{name}.{key}": v for name, part in tree.items() for key, v in part.items() if key not in NO_KEYS
        }


def checked(section: str, table: Any) -> dict[str, Any]:
    """Check the keys and types of a section."""
    if section in ("train", "learn") and isinstance(table, dict):
        table = with_new_names(table)
    return as_table(section, table, keys(section), RecipeError)


def keys(section: str) -> dict[str, Any]:
    """The keys of a section, with types and rules."""
    kind = SECTIONS[section]
    types = get_type_hints(kind, include_extras=True)
    if kind is Data:
        types = {"name": str, "options": dict, **client_option_types(include_extras=True)}
    return {name: types[name] for name in types if name not in NO_KEYS}


def located(place: str) -> AbstractContextManager[None]:
    """Add the place in a recipe, if any, to errors as a note."""
    return noted(f"in {place}") if place else nullcontext()


def merged(base: Tree, override: Tree) -> Tree:
    """Merge two trees; values of `override` win.

    >>> merged({"train": {"epochs": 2, "lr": 0.1}}, {"train": {"local_epochs": 3}})
    {'train': {'local_epochs': 3, 'lr': 0.1}}
    """
    result = dict(base)
    for key, value in override.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            tables = (base[key], value)
            value = merged(*map(with_new_names, tables) if key in ("train", "learn") else tables)
        result[key] = value
    return result
