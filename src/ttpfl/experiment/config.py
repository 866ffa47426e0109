"""One case of a recipe with everything decided: which data, network, training, rates and test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Self, get_type_hints

from ttpfl.data.manifest import as_json
from ttpfl.data.population_config import PopulationConfig
from ttpfl.data.registry import client_choices, options
from ttpfl.errors import RecipeError, TtpflError
from ttpfl.evaluation.streams import ORDERS
from ttpfl.federation.settings import LearnSettings, TrainSettings, with_new_names
from ttpfl.util.settings_kit import as_table, integer, one_of

Tree = dict[str, Any]
"""Tables within tables, as TOML has them."""

SEEDED = "seed"  # follows from the recipe's seeds, so that it is not a key of its own
NO_KEYS = (SEEDED, "workers")  # workers are the machine's business: `ttpfl run --workers`


@dataclass(frozen=True)
class Data:
    """A data set, its options, and the fields of `PopulationConfig` that are not left at its own defaults."""

    name: str = "cifar10"
    """One of `ttpfl data list`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the data set itself, such as `image_size`; `ttpfl data info` lists them."""
    choices: Mapping[str, Any] = field(default_factory=dict)

    def said(self) -> Tree:
        """What is not left at a default, as a recipe has it."""
        return {"options": dict(self.options), **self.choices}

    def defaults(self) -> Tree:
        """What holds for everything that is not said."""
        choices = client_choices(self.name)
        del choices[SEEDED]
        return {"options": as_json(options(self.name)), **choices}


@dataclass(frozen=True)
class Model:
    """A network by name, with fresh weights or those of a file below the data directory."""

    name: str = "shallow_cnn"
    """shallow_cnn, resnet18, resnet50, or your own as package.module:function."""
    weights: str | None = None
    """A file below the data directory, or a path."""


@dataclass(frozen=True)
class Tune:
    """Tune baselines' hyper-parameters on this many source clients; 0 uses the defaults."""

    clients: Annotated[int, integer(0)] = 0
    """Source clients to choose on, evenly over all."""


@dataclass(frozen=True)
class Test:
    """How the streams of target clients come."""

    batch_size: Annotated[int, integer(1)] = 20
    """Images that come at a time."""
    order: Annotated[str, one_of(*ORDERS)] = "iid"
    """iid (random), recorded, label-sorted or mixed."""


SECTIONS: dict[str, type[Any]] = {
    "data": Data,
    "model": Model,
    "train": TrainSettings,
    "learn": LearnSettings,
    "tune": Tune,
    "test": Test,
}


@dataclass(frozen=True)
class Config:
    """All that the results of one case and seed follow from, but for the compared methods.

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
    learn: LearnSettings = field(default_factory=LearnSettings)
    tune: Tune = field(default_factory=Tune)
    test: Test = field(default_factory=Test)

    @classmethod
    def of(cls, tree: Tree, seed: int) -> Self:
        """Read the sections of a recipe; everything that is not said has its default."""
        parts: dict[str, Any] = {}
        for name, kind in SECTIONS.items():
            said = checked(name, tree.get(name, {}))
            if name == "data":
                own: Tree = {key: said.pop(key) for key in ("name", "options") if key in said}
                said = {**own, "choices": said}
            elif SEEDED in kind.__dataclass_fields__:
                said[SEEDED] = seed
            with located(name):
                parts[name] = kind(**said)
        return cls(seed=seed, **parts)

    def flat(self) -> dict[str, Any]:
        """Every key with its value, as `--set` names them; also those that are left at their defaults.

        >>> Config.of({"data": {"name": "cifar100"}}, seed=0).flat()["data.ratio"]
        51.0
        """
        tree = {name: asdict(getattr(self, name)) for name in SECTIONS}
        tree["data"] = {"name": self.data.name, **merged(self.data.defaults(), self.data.said())}
        return {
            f"{name}.{key}": v for name, part in tree.items() for key, v in part.items() if key not in NO_KEYS
        }


def checked(section: str, table: Any) -> dict[str, Any]:
    """A section whose keys are known and whose values have the right types."""
    if section in ("train", "learn") and isinstance(table, dict):
        table = with_new_names(table)
    return as_table(section, table, keys(section), RecipeError)


def keys(section: str) -> dict[str, Any]:
    """The keys of a section with their types and rules."""
    kind = SECTIONS[section]
    types = get_type_hints(kind, include_extras=True)
    if kind is Data:
        types = {"name": str, "options": dict, **get_type_hints(PopulationConfig, include_extras=True)}
    return {name: types[name] for name in types if name not in NO_KEYS}


@contextmanager
def located(where: str) -> Iterator[None]:
    """Errors of the library that do not know in which part of a recipe they are get it as a note."""
    try:
        yield
    except TtpflError as error:
        if where:
            error.add_note(f"in {where}")
        raise


def merged(below: Tree, above: Tree) -> Tree:
    """Both trees in one; where both say something, `above` holds.

    >>> merged({"train": {"rounds": 2, "lr": 0.1}}, {"train": {"rounds": 3}})
    {'train': {'rounds': 3, 'lr': 0.1}}
    """
    both = dict(below)
    for key, value in above.items():
        tables = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if tables else value
    return both
