"""A recipe in full: what it says, and every default that it leaves."""

from dataclasses import asdict

from ttpfl.data.registry import facts
from ttpfl.data.setting import setting_of
from ttpfl.experiment.config import NO_KEYS, SECTIONS, Config, Tree
from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.toml import written


def complete(recipe: Recipe) -> str:
    """As TOML.

    >>> from ttpfl.experiment.recipe import read
    >>> print(complete(read("demo")).splitlines()[0])
    title = "Digits from four sources: one held out"
    """
    tree: Tree = {
        key: value for key, value in recipe.tree.items() if key not in (*SECTIONS, "cases", "entries")
    }
    sections = _sections(recipe) if recipe.compares else {}
    rest: Tree = {key: recipe.tree[key] for key in ("cases", "entries") if key in recipe.tree}
    return written({**tree, **sections, **rest}, ()).strip()


def _sections(recipe: Recipe) -> Tree:
    config = Config.of({name: recipe.tree.get(name, {}) for name in SECTIONS}, recipe.seeds[0])
    sections = {name: asdict(getattr(config, name)) for name in SECTIONS}
    choices = asdict(setting_of(facts(config.data.name).defaults, config.data.choices))
    sections["data"] = {"name": config.data.name, "options": dict(config.data.options), **choices}
    return {
        name: {key: said for key, said in section.items() if key not in NO_KEYS}
        for name, section in sections.items()
    }
