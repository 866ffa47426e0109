"""A recipe in full, as TOML."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ttpfl.data.registry import facts
from ttpfl.data.setting import setting_of
from ttpfl.experiment.config import NO_KEYS, SECTIONS, Config, Tree

if TYPE_CHECKING:
    from ttpfl.experiment.recipe import Recipe


def complete(recipe: "Recipe") -> str:
    """Everything that the recipe says, and every default that it leaves.

    >>> from ttpfl.experiment.recipe import read
    >>> print(complete(read("demo")).splitlines()[0])
    title = "Digits from four sources: one held out"
    """
    tree: Tree = {
        key: value for key, value in recipe.tree.items() if key not in (*SECTIONS, "cases", "entries")
    }
    sections = _sections(recipe) if recipe.compares else {}
    rest: Tree = {key: recipe.tree[key] for key in ("cases", "entries") if key in recipe.tree}
    return _tables({**tree, **sections, **rest}, ()).strip()


def _sections(recipe: "Recipe") -> Tree:
    config = Config.of({name: recipe.tree.get(name, {}) for name in SECTIONS}, recipe.seeds[0])
    sections = {name: asdict(getattr(config, name)) for name in SECTIONS}
    choices = asdict(setting_of(facts(config.data.name).defaults, config.data.choices))
    sections["data"] = {"name": config.data.name, "options": dict(config.data.options), **choices}
    return {
        name: {key: said for key, said in section.items() if key not in NO_KEYS}
        for name, section in sections.items()
    }


def _tables(tree: dict[str, Any], path: tuple[str, ...]) -> str:
    """Plain values first, then tables: TOML wants it so."""
    lines, tables = [], []
    for key, said in tree.items():
        if said is None:
            lines.append(f"# {_key(key)} is not set")
        elif isinstance(said, dict) and said:
            tables.append(_tables(said, (*path, key)))
        else:
            lines.append(f"{_key(key)} = {value(said)}")
    head = f"\n[{dotted(path)}]\n" if path and lines else ""
    return head + "\n".join(lines) + ("\n" if lines else "") + "".join(tables)


def dotted(path: Iterable[str]) -> str:
    """A key within tables.

    >>> dotted(["cases", "+10", "train"])
    'cases."+10".train'
    """
    return ".".join(map(_key, path))


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def value(said: Any) -> str:
    """A value as TOML has it.

    >>> print(value({"image size": [32, 32]}))
    { "image size" = [32, 32] }
    """
    if isinstance(said, dict):
        return "{ " + ", ".join(f"{_key(k)} = {value(v)}" for k, v in said.items()) + " }"
    if isinstance(said, (list, tuple)):
        return "[" + ", ".join(map(value, said)) + "]"
    return json.dumps(said)
