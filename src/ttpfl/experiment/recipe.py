"""Recipes: TOML files that say everything about a table or figure."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ttpfl.errors import MethodError, RecipeError
from ttpfl.experiment.config import SECTIONS, Config, Tree, checked, known_key, merged
from ttpfl.methods import make

TOP = {
    "title": str, "question": str, "kind": str, "seeds": list, "methods": list, "entries": list,
    "cases": dict, "only": list, "paper": dict, "presets": dict, **dict.fromkeys(SECTIONS, dict),
}  # fmt: skip
ENTRY = {"label": str, "method": str, "config": dict, "rates": dict}
BASE = "paper"  # the preset that changes nothing
COMPARISON, TOY = "comparison", "toy"
KINDS = (COMPARISON, TOY)


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: a method, and where its rates come from."""

    label: str
    method: str
    config: Mapping[str, Any]
    """Hyper-parameters; those of the tuning, or the defaults, where nothing is said."""
    rates: Tree
    """What is different where its rates are learned: `{"data": {"shift": "label"}}`."""


@dataclass(frozen=True)
class Recipe:
    """A recipe with its preset and the user's changes merged in."""

    name: str
    tree: Tree
    preset: str = BASE
    changes: Mapping[str, Any] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _check(self.tree, self.name)
        for case in self.cases:
            self.config(case, 0)
        for entry in self.entries:
            _check_method(entry)
            Config.of(merged(self._sections(), entry.rates), 0)

    @property
    def title(self) -> str:
        """What it is called."""
        return str(self.tree.get("title", self.name))

    @property
    def kind(self) -> str:
        """Whether methods are compared, or something else is computed."""
        return str(self.tree.get("kind", COMPARISON))

    @property
    def seeds(self) -> list[int]:
        """One run each."""
        return list(self.tree.get("seeds", [0]))

    @property
    def cases(self) -> list[str]:
        """The names of the columns, or of the points of a line."""
        cases = list(self.tree.get("cases", {"": {}}))
        only = self.tree.get("only") or cases
        for name in only:
            known_key("cases", name, cases)
        return [name for name in cases if name in only]

    @property
    def entries(self) -> list[Entry]:
        """What is compared: plain methods by name, then those with something special to them."""
        plain = [Entry(name, name, {}, {}) for name in self.tree.get("methods", [])]
        return plain + [
            Entry(said["label"], said["method"], said.get("config", {}), said.get("rates", {}))
            for said in self.tree.get("entries", [])
        ]

    def config(self, case: str, seed: int) -> Config:
        """A case with everything decided."""
        return Config.of(merged(self._sections(), self._case(case)), seed)

    def rates_config(self, case: str, seed: int, entry: Entry, kind: str) -> Config:
        """Where the rates of an entry are learned: `kind` is what the method needs."""
        tree = merged(merged(self._sections(), self._case(case)), entry.rates)
        return Config.of(merged(tree, {} if kind == "all" else {"learn": {"only": kind}}), seed)

    @property
    def hash(self) -> str:
        """Of everything that it says."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()

    def _sections(self) -> Tree:
        return {name: self.tree.get(name, {}) for name in SECTIONS}

    def _case(self, name: str) -> Tree:
        return dict(self.tree.get("cases", {}).get(name, {}))


def read(recipe: str | PathLike[str], preset: str | None = None, changes: Iterable[str] = ()) -> Recipe:
    """The recipe in a file, or that of a name that comes along, with a preset and `key=value` changes.

    >>> read("demo").title
    'Digits from four sources: one held out'
    >>> read("demo", changes=["train.round=3"])
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: there is no key 'round' in train; did you mean 'rounds'? Known: rounds, ...
    """
    path = find_file(recipe)
    try:
        tree = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not sound TOML: {error}") from None
    presets = tree.pop("presets", {})
    if preset not in (None, BASE):
        tree = merged(tree, known_key("presets", str(preset), presets))
    made = dict(map(_change, changes))
    for key, value in made.items():
        tree = merged(tree, _nested(key, value))
    return Recipe(path.stem, tree, preset or BASE, made)


def presets(recipe: str | PathLike[str]) -> list[str]:
    """The presets of a recipe."""
    return [BASE, *tomllib.loads(find_file(recipe).read_text()).get("presets", {})]


def find_file(recipe: str | PathLike[str]) -> Path:
    """A recipe's file: a path, or a name of those that come along."""
    path = Path(recipe)
    if path.suffix == ".toml":
        if not path.exists():
            raise RecipeError(f"there is no recipe {path}. Those that come along: {', '.join(known())}")
        return path
    return folder() / f"{known_key('recipes', str(recipe), known()) or recipe}.toml"


def known() -> list[str]:
    """The names of the recipes that come along."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def folder() -> Path:
    """Where the recipes are: in an installed package, or in the repository."""
    package = Path(__file__).parents[1]
    return next(place for place in (package / "recipes", package.parents[1] / "recipes") if place.is_dir())


def _check(tree: Tree, name: str) -> None:
    _kinds(tree, TOP, "recipe")
    known_key("the kinds of recipes", tree.get("kind", COMPARISON), KINDS)
    for section in SECTIONS:
        checked(section, tree.get(section, {}))
    for case, said in tree.get("cases", {}).items():
        for section in said:
            known_key(f"cases.{case}", section, SECTIONS)
    for number, said in enumerate(tree.get("entries", [])):
        _kinds(said, ENTRY, f"entries[{number}]")
        for key in ("label", "method"):
            if key not in said:
                raise RecipeError(f"entries[{number}] has no {key}: {said}")
    if not all(isinstance(seed, int) and seed >= 0 for seed in tree.get("seeds", [])):
        raise RecipeError(f"seeds are {tree['seeds']}: they must be whole numbers from 0")
    labels = [*tree.get("methods", []), *(said["label"] for said in tree.get("entries", []))]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise RecipeError(f"{sorted(twice)[0]!r} is compared twice in {name}: give it another label")


def _check_method(entry: Entry) -> None:
    """Before hours of training, and not after them."""
    if entry.method != TOY:
        try:
            make(entry.method, **entry.config)
        except MethodError as error:
            raise RecipeError(f"{entry.label!r}: {error}") from None


def _kinds(tree: Tree, kinds: Mapping[str, type], where: str) -> None:
    for key, value in tree.items():
        kind = known_key(where, key, kinds)
        if not isinstance(value, kind):
            raise RecipeError(f"{key} in {where} is {value!r}: it must be a {kind.__name__}")


def _change(text: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise RecipeError(f"--set {text}: it takes the form key=value, such as train.rounds=10")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value  # text without quotation marks


def _nested(key: str, value: Any) -> Tree:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)
