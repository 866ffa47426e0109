"""Recipes: TOML files that define everything about a table or figure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ttpfl.errors import LimitError, RecipeError
from ttpfl.evaluation.streams import ALL_ORDERS
from ttpfl.experiment.changes import Keys, contains, leaves, parsed
from ttpfl.experiment.checks import check_config, check_finite, check_modules, check_paper, checked_method
from ttpfl.experiment.config import SECTIONS, Config, Tree, checked, located, merged
from ttpfl.experiment.toml import dotted
from ttpfl.results.schema import HEADLINES
from ttpfl.util.reading import read_toml
from ttpfl.util.settings_kit import as_table, as_type, check_known, find, must_be

TOP = {
    "title": str, "question": str, "kind": str, "seeds": list, "methods": list, "entries": list,
    "cases": dict, "only": list, "paper": dict, "headline": str, "orders": list,
    **dict.fromkeys(SECTIONS, dict),
}  # fmt: skip
ENTRY = {"label": str, "method": str, "config": dict, "rates": dict}
BASE = "paper"  # the default preset, which every recipe has
COMPARISON, TOY = "comparison", "toy"
KINDS = (COMPARISON, TOY)
ANY_OPTIMIZER = ("batch_size", "cross_fit", "eval_every", "mode", "only", "prior", "budget", "guard")
"""Settings of rate learning that do not depend on the optimizer."""
TOY_KEYS = ("title", "question", "kind", "seeds", "paper")


@dataclass(frozen=True)
class MethodSpec:
    """One line of the comparison: a method, and the settings of its rates."""

    label: str
    method: str
    config: Mapping[str, Any]
    """Hyper-parameters; tuned or default values where missing."""
    rates: Tree
    """Settings that differ while its rates are learned: `{"data": {"shift": "label"}}`."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, merged with a preset and the user's changes."""

    name: str
    tree: Tree
    preset: str = BASE
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The user's changes by full key: `{"train.rounds": 10}`."""

    def __post_init__(self) -> None:
        _check(self.tree, self.name)
        if self.compares:
            for case in self.cases:
                with located(case and f"case {case}"):
                    self._check_case(case)

    @property
    def compares(self) -> bool:
        """Whether the recipe compares methods."""
        return self.kind == COMPARISON

    @property
    def title(self) -> str:
        """The title, or else the name."""
        return str(self.tree.get("title", self.name))

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return str(self.tree.get("kind", COMPARISON))

    @property
    def seeds(self) -> list[int]:
        """The random seeds, one run each."""
        return list(self.tree.get("seeds", [0]))

    @property
    def cases(self) -> list[str]:
        """The names of the cases to run: columns of a table, or points of a line."""
        cases = list(self.tree.get("cases") or {"": {}})
        only = self.tree.get("only") or cases
        if only != cases and not self.tree.get("cases"):
            raise RecipeError(f"only is {only}, but {self.name} has no cases to choose from: leave it out")
        for name in only:
            check_known("case", name, cases, RecipeError)
        return [name for name in cases if name in only]

    @property
    def entries(self) -> list[MethodSpec]:
        """The entries to compare: plain methods, then those with their own settings."""
        plain = [MethodSpec(name, name, {}, {}) for name in self.tree.get("methods", [])]
        return plain + [
            MethodSpec(entry["label"], entry["method"], entry.get("config", {}), entry.get("rates", {}))
            for entry in self.tree.get("entries", [])
        ]

    @property
    def learns(self) -> bool:
        """Whether any entry needs learned rates."""
        return any(checked_method(e.label, e.method, e.config).needs_rates for e in self.entries)

    @property
    def headline(self) -> str:
        """The main metric of tables and reports: a key of `HEADLINES`."""
        return str(self.tree.get("headline", "accuracy"))

    @property
    def orders(self) -> list[str]:
        """Further orders of the target clients' streams in which all entries are compared."""
        return list(self.tree.get("orders", []))

    def overrides(self, case: str) -> Tree:
        """The settings of a case that override those of the recipe."""
        return dict(self.tree.get("cases", {}).get(case, {}))

    def config(self, case: str, seed: int) -> Config:
        """All settings of a case."""
        return Config.of(self._sections(case), seed)

    def rates_config(self, case: str, seed: int, entry: MethodSpec, kind: str) -> Config:
        """All settings with which the rates of an entry are learned; `kind` is the method's `needs_rates`."""
        sections = self._sections(case)
        if "optimizer" in entry.rates.get("learn", {}):  # the settings of another optimizer do not apply
            shared = {name: value for name, value in sections["learn"].items() if name in ANY_OPTIMIZER}
            sections = {**sections, "learn": shared}
        tree = merged(sections, entry.rates)
        selection = {} if kind == "all" else {"learn": {"only": kind, "budget": None}}
        return Config.of(merged(tree, selection), seed)

    @property
    def hash(self) -> str:
        """The hash of the merged recipe."""
        return _hash(self.tree)

    @property
    def folder(self) -> str:
        """The name of the results' folder, which depends on preset and changes."""
        return f"{self.name}-{self.preset}" + (f"-{_hash(self.changes)[:8]}" if self.changes else "")

    def _check_case(self, case: str) -> None:
        """Find mistakes before hours of training."""
        config = self.config(case, 0)
        check_config(config)
        if config.test.order in self.orders:
            raise RecipeError(f"orders has {config.test.order!r}, which is test.order already: leave it out")
        for entry in self.entries:
            method = checked_method(entry.label, entry.method, entry.config)
            check_modules(entry.label, method, config.model.name)
            if getattr(method, "guard", False) and not self.rates_config(case, 0, entry, "all").learn.guard:
                raise RecipeError(
                    f"{entry.label!r} uses a guard, but none is learned: set learn.guard = true"
                )
            if entry.rates:
                with located(f"rates of {entry.label!r}"):
                    check_config(self.rates_config(case, 0, entry, "all"))

    def _sections(self, case: str) -> Tree:
        return merged({name: self.tree.get(name, {}) for name in SECTIONS}, self.overrides(case))


def _hash(tree: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def read(recipe: str | PathLike[str], preset: str | None = None, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe by file or built-in name, with a preset and `key=value` changes.

    >>> read("demo").title
    'Digits from four sources: one held out'
    >>> read("demo", changes=["train.round=3"])
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: unknown key 'round' in train; did you mean 'rounds'? Available: rounds, ...
    """
    path = find_file(recipe)
    trees = _presets(path)
    for name, tree in trees.items():  # check all presets, not only the chosen one
        with located("" if name == BASE else f"preset {name}"):
            Recipe(path.stem, tree, name)
    preset = BASE if preset is None else preset
    tree = find("preset", preset, trees, RecipeError, f"of {path.stem}")
    changed: dict[Keys, Any] = {}
    for change in map(parsed, changes):
        for keys, value in leaves(change):
            if keys in changed:
                raise RecipeError(f"--set {dotted(keys)} is both {changed[keys]!r} and {value!r}: remove one")
            changed[keys] = value
        tree = merged(tree, change)
    result = Recipe(path.stem, tree, preset, {dotted(keys): value for keys, value in changed.items()})
    _check_effect(result, changed, trees[preset].get("cases", {}))
    return result


def presets(recipe: str | PathLike[str]) -> list[str]:
    """The presets of a recipe."""
    return list(_presets(find_file(recipe)))


def find_file(recipe: str | PathLike[str]) -> Path:
    """The file of a recipe, by path or built-in name."""
    path = Path(recipe)
    if path.suffix.lower() == ".toml":
        if not path.exists():
            raise RecipeError(f"there is no recipe {path}. Built-in recipes: {', '.join(names())}")
        return path
    return find("recipe", str(recipe), {name: folder() / f"{name}.toml" for name in names()}, RecipeError)


def names() -> list[str]:
    """The names of the built-in recipes."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def folder() -> Path:
    """The folder of the recipes, in the installed package or in the repository."""
    package = Path(__file__).parents[1]
    return next(place for place in (package / "recipes", package.parents[1] / "recipes") if place.is_dir())


def _presets(path: Path) -> dict[str, Tree]:
    """The recipe merged with each of its presets; `paper` is the recipe itself if it has no such preset."""
    try:
        tree = read_toml(path)
    except LimitError:
        raise
    except ValueError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}") from None
    presets = as_type("presets", tree.pop("presets", {}), dict[str, dict[str, Any]], RecipeError)
    return {name: merged(tree, presets.get(name, {})) for name in (BASE, *presets)}


def _check(tree: Tree, name: str) -> None:
    """Check keys and types."""
    as_table("", tree, TOP, RecipeError)
    check_finite(tree)
    check_known("kind", tree.get("kind", COMPARISON), KINDS, RecipeError, "of recipe")
    seeds = tree.get("seeds", [0])
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds) or len({*seeds}) < len(seeds):
        raise RecipeError(must_be("seeds", "a list of distinct non-negative integers", seeds))
    check_known("headline", tree.get("headline", "accuracy"), HEADLINES, RecipeError)
    for order in tree.get("orders", []):
        check_known("order", order, ALL_ORDERS, RecipeError, "in orders")
    toy = tree.get("kind") == TOY
    check_paper(tree.get("paper", {}), None if toy else tree.get("cases") or [""])
    if toy:
        for key in tree:
            check_known("key", key, TOY_KEYS, RecipeError, "in a recipe of kind toy")
        return
    for section in SECTIONS:
        checked(section, tree.get(section, {}))
    for case, sections in tree.get("cases", {}).items():
        _check_sections(f"cases.{case}", sections)
    _check_entries(tree, name)


def _check_entries(tree: Tree, name: str) -> None:
    """Check that every entry has a method and a distinct label."""
    entries = tree.get("entries", [])
    for number, entry in enumerate(entries):
        as_table(f"entries[{number}]", entry, ENTRY, RecipeError)
        for key in ("label", "method"):
            if not entry.get(key):
                raise RecipeError(f"entries[{number}] has no {key}: {entry}")
        _check_sections(f"rates of {entry['label']!r}", entry.get("rates", {}))
    methods = as_type("methods", tree.get("methods", []), list[str], RecipeError)
    labels = [*methods, *(entry["label"] for entry in entries)]
    if not labels:
        raise RecipeError(f"{name} compares nothing: add methods, such as methods = ['none', 'atp-batch']")
    if repeated := sorted(label for label in labels if labels.count(label) > 1):
        raise RecipeError(f"{repeated[0]!r} is compared twice in {name}: choose another label")


def _check_sections(place: str, sections: Any) -> None:
    for section, table in as_table(place, sections, dict.fromkeys(SECTIONS, dict), RecipeError).items():
        checked(section, table)


def _check_effect(recipe: Recipe, changed: Iterable[Keys], cases: Tree) -> None:
    """Reject changes without effect, which the results would claim, and changes of unknown cases."""
    for path in changed:
        prefix = f"--set {dotted(path)} changes nothing:"
        in_case = path[0] == "cases" and len(path) > 1
        if in_case and cases:
            check_known("case", path[1], cases, RecipeError)
        if in_case and path[1] not in recipe.cases:
            raise RecipeError(f"{prefix} only these cases are run: {', '.join(recipe.cases)}")
        if "learn" in (path[2:3] if in_case else path[:1]) and not recipe.learns:
            raise RecipeError(f"{prefix} no compared method needs learned rates")
        if path[0] in SECTIONS and all(contains(recipe.overrides(case), path) for case in recipe.cases):
            instead = dotted(("cases", recipe.cases[0], *path))
            raise RecipeError(f"{prefix} every case overrides it; use --set {instead}")
