"""Recipes: TOML files that say everything about a table or figure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ttpfl.errors import LimitError, RecipeError
from ttpfl.experiment.changes import Keys, leaves, parsed, says
from ttpfl.experiment.checks import check_config, check_finite, check_modules, check_paper, checked_method
from ttpfl.experiment.config import SECTIONS, Config, Tree, checked, located, merged
from ttpfl.experiment.toml import dotted
from ttpfl.util.reading import read_toml
from ttpfl.util.settings_kit import as_table, as_type, check_known, find, must_be

TOP = {
    "title": str, "question": str, "kind": str, "seeds": list, "methods": list, "entries": list,
    "cases": dict, "only": list, "paper": dict, **dict.fromkeys(SECTIONS, dict),
}  # fmt: skip
ENTRY = {"label": str, "method": str, "config": dict, "rates": dict}
BASE = "paper"  # the preset that changes nothing
COMPARISON, TOY = "comparison", "toy"
KINDS = (COMPARISON, TOY)
OF_TOY = ("title", "question", "kind", "seeds", "paper")  # nothing else decides about the toy example


@dataclass(frozen=True)
class MethodSpec:
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
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What the user changed, each by its full key: `{"train.rounds": 10}`."""

    def __post_init__(self) -> None:
        _check(self.tree, self.name)
        if self.compares:
            for case in self.cases:
                with located(case and f"case {case}"):
                    self._check_case(case)

    @property
    def compares(self) -> bool:
        """Whether methods are compared."""
        return self.kind == COMPARISON

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
        cases = list(self.tree.get("cases") or {"": {}})
        only = self.tree.get("only") or cases
        if only != cases and not self.tree.get("cases"):
            raise RecipeError(f"only is {only}, but {self.name} has no cases to choose from: leave it out")
        for name in only:
            check_known("case", name, cases, RecipeError)
        return [name for name in cases if name in only]

    @property
    def entries(self) -> list[MethodSpec]:
        """What is compared: plain methods by name, then those with something special to them."""
        plain = [MethodSpec(name, name, {}, {}) for name in self.tree.get("methods", [])]
        return plain + [
            MethodSpec(said["label"], said["method"], said.get("config", {}), said.get("rates", {}))
            for said in self.tree.get("entries", [])
        ]

    @property
    def learns(self) -> bool:
        """Whether rates are learned for anything that is compared."""
        return any(checked_method(e.label, e.method, e.config).needs_rates for e in self.entries)

    def said_by(self, case: str) -> Tree:
        """The sections that a case says otherwise."""
        return dict(self.tree.get("cases", {}).get(case, {}))

    def config(self, case: str, seed: int) -> Config:
        """A case with everything decided."""
        return Config.of(merged(self._sections(), self.said_by(case)), seed)

    def rates_config(self, case: str, seed: int, entry: MethodSpec, kind: str) -> Config:
        """Where the rates of an entry are learned: `kind` is what the method needs."""
        tree = merged(merged(self._sections(), self.said_by(case)), entry.rates)
        return Config.of(merged(tree, {} if kind == "all" else {"learn": {"only": kind}}), seed)

    @property
    def hash(self) -> str:
        """Of everything that it says."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> str:
        """What the folder of its results is called: those of other changes are kept apart."""
        said = hashlib.sha256(json.dumps(self.changes, sort_keys=True).encode()).hexdigest()
        return f"{self.name}-{self.preset}" + (f"-{said[:8]}" if self.changes else "")

    def _check_case(self, case: str) -> None:
        """Before hours of training, and not after them."""
        config = self.config(case, 0)
        check_config(config)
        for entry in self.entries:
            method = checked_method(entry.label, entry.method, entry.config)
            check_modules(entry.label, method, config.model.name)
            if entry.rates:
                with located(f"rates of {entry.label!r}"):
                    check_config(self.rates_config(case, 0, entry, "all"))

    def _sections(self) -> Tree:
        return {name: self.tree.get(name, {}) for name in SECTIONS}


def read(recipe: str | PathLike[str], preset: str | None = None, changes: Iterable[str] = ()) -> Recipe:
    """The recipe in a file, or that of a name that comes along, with a preset and `key=value` changes.

    >>> read("demo").title
    'Digits from four sources: one held out'
    >>> read("demo", changes=["train.round=3"])
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: unknown key 'round' in train; did you mean 'rounds'? Available: rounds, ...
    """
    path = find_file(recipe)
    trees = _presets(path)
    for name, tree in trees.items():  # all of them: a mistake shall not wait until its preset is chosen
        with located("" if name == BASE else f"preset {name}"):
            Recipe(path.stem, tree, name)
    chosen = BASE if preset is None else preset
    tree = find("preset", chosen, trees, RecipeError, f"of {path.stem}")
    made: dict[Keys, Any] = {}
    for change in map(parsed, changes):
        for keys, value in leaves(change):
            if keys in made:
                raise RecipeError(f"--set {dotted(keys)} is both {made[keys]!r} and {value!r}: leave out one")
            made[keys] = value
        tree = merged(tree, change)
    found = Recipe(path.stem, tree, chosen, {dotted(keys): value for keys, value in made.items()})
    _check_reach(found, made, trees[chosen].get("cases", {}))
    return found


def presets(recipe: str | PathLike[str]) -> list[str]:
    """The presets of a recipe."""
    return list(_presets(find_file(recipe)))


def find_file(recipe: str | PathLike[str]) -> Path:
    """A recipe's file: a path, or a name of those that come along."""
    path = Path(recipe)
    if path.suffix.lower() == ".toml":
        if not path.exists():
            raise RecipeError(f"there is no recipe {path}. Those that come along: {', '.join(known())}")
        return path
    return find("recipe", str(recipe), {name: folder() / f"{name}.toml" for name in known()}, RecipeError)


def known() -> list[str]:
    """The names of the recipes that come along."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def folder() -> Path:
    """Where the recipes are: in an installed package, or in the repository."""
    package = Path(__file__).parents[1]
    return next(place for place in (package / "recipes", package.parents[1] / "recipes") if place.is_dir())


def _presets(path: Path) -> dict[str, Tree]:
    """What a file says with each of its presets; the first is the recipe as it stands."""
    try:
        tree = read_toml(path)
    except LimitError:
        raise
    except ValueError as error:
        raise RecipeError(f"{path} is not sound TOML: {error}") from None
    said = as_type("presets", tree.pop("presets", {}), dict[str, dict[str, Any]], RecipeError)
    if BASE in said:
        raise RecipeError(
            f"presets.{BASE} is in {path}, but that is the recipe as it stands: use another name"
        )
    return {BASE: tree, **{name: merged(tree, said[name]) for name in said}}


def _check(tree: Tree, name: str) -> None:
    """The keys and the kinds of their values, whatever the cases make of them."""
    as_table("", tree, TOP, RecipeError)
    check_finite(tree)
    check_known("kind", tree.get("kind", COMPARISON), KINDS, RecipeError, "of recipe")
    seeds = tree.get("seeds", [0])
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds) or len({*seeds}) < len(seeds):
        raise RecipeError(must_be("seeds", "a list of distinct non-negative integers", seeds))
    toy = tree.get("kind") == TOY
    check_paper(tree.get("paper", {}), None if toy else tree.get("cases") or [""])
    if toy:
        for key in tree:
            check_known("key", key, OF_TOY, RecipeError, "in a recipe of kind toy")
        return
    for section in SECTIONS:
        checked(section, tree.get(section, {}))
    for case, said in tree.get("cases", {}).items():
        _check_sections(f"cases.{case}", said)
    _check_lines(tree, name)


def _check_lines(tree: Tree, name: str) -> None:
    """What is compared: every line has a label of its own, and a method."""
    entries = tree.get("entries", [])
    for number, said in enumerate(entries):
        as_table(f"entries[{number}]", said, ENTRY, RecipeError)
        for key in ("label", "method"):
            if not said.get(key):
                raise RecipeError(f"entries[{number}] has no {key}: {said}")
        _check_sections(f"rates of {said['label']!r}", said.get("rates", {}))
    methods = as_type("methods", tree.get("methods", []), list[str], RecipeError)
    labels = [*methods, *(said["label"] for said in entries)]
    if not labels:
        raise RecipeError(f"{name} compares nothing: give methods, such as methods = ['none', 'atp-batch']")
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise RecipeError(f"{sorted(twice)[0]!r} is compared twice in {name}: give it another label")


def _check_sections(where: str, said: Any) -> None:
    for section, table in as_table(where, said, dict.fromkeys(SECTIONS, dict), RecipeError).items():
        checked(section, table)


def _check_reach(recipe: Recipe, changed: Iterable[Keys], cases: Tree) -> None:
    """A change that no case takes notice of is a mistake: the results would claim that it was made.

    So is one to a case that the file does not have (but one without cases may be given some).
    """
    for path in changed:
        of_cases = path[0] == "cases" and len(path) > 1
        if of_cases and cases:
            check_known("case", path[1], cases, RecipeError)
        if of_cases and path[1] not in recipe.cases:
            run = ", ".join(recipe.cases)
            raise RecipeError(f"--set {dotted(path)} changes nothing: of the cases, only {run} will be run")
        if "learn" in (path[2:3] if of_cases else path[:1]) and not recipe.learns:
            raise RecipeError(
                f"--set {dotted(path)} changes nothing: no method that is compared has rates to learn"
            )
        if path[0] in SECTIONS and all(says(recipe.said_by(case), path) for case in recipe.cases):
            instead = dotted(("cases", recipe.cases[0], *path))
            raise RecipeError(
                f"--set {dotted(path)} changes nothing, since every case says its own: set {instead}"
            )
