"""A complete recipe, with all defaults."""

from dataclasses import asdict, fields
from typing import Any

from ttpfl.experiment.config import NO_KEYS, SECTIONS, Config, Tree, merged
from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.toml import Default, written
from ttpfl.methods import make

HYPER_PARAMETERS = """\
# Hyper-parameters by label. If tune.clients is positive, methods with a grid are tuned on source clients
# instead, except entries with a config."""


def complete(recipe: Recipe) -> str:
    """Format a recipe as TOML, which yields the same stages when it is read.

    >>> from ttpfl.experiment.recipe import read
    >>> print(complete(read("demo")).splitlines()[0])
    title = "Digits from four sources: one held out"
    """
    top: Tree = {
        "title": recipe.title,
        "question": recipe.tree.get("question", ""),
        "kind": recipe.kind,
        "seeds": recipe.seeds,
    }
    rest = {key: item for key, item in recipe.tree.items() if key not in (*SECTIONS, "cases", "entries")}
    if not recipe.compares:
        return written({**top, **rest}, ()).strip()
    last: Tree = {key: recipe.tree[key] for key in ("cases", "entries") if key in recipe.tree}
    return written({**top, **rest, **_sections(recipe), **last}, ()) + _hyper_parameters(recipe).rstrip()


def _sections(recipe: Recipe) -> Tree:
    tree = {name: recipe.tree.get(name, {}) for name in SECTIONS}
    config = Config.of(tree, recipe.seeds[0])
    sections = {name: _shown(getattr(config, name), tree[name]) for name in SECTIONS}
    # Explicit choices identify the population's stage, so defaults are only comments.
    defaults = _as_comments(config.data.defaults())
    sections["data"] = {"name": config.data.name, **merged(defaults, config.data.explicit())}
    return {
        name: {key: item for key, item in section.items() if key not in NO_KEYS}
        for name, section in sections.items()
    }


def _shown(settings: Any, explicit: Tree) -> Tree:
    """All settings; those that follow from others only as comments, since other cases may have others."""
    follows = {entry.name for entry in fields(settings) if entry.default is None} - explicit.keys()
    return {key: Default(item) if key in follows else item for key, item in asdict(settings).items()}


def _as_comments(defaults: Tree) -> Tree:
    return {
        key: _as_comments(item) if isinstance(item, dict) else Default(item) for key, item in defaults.items()
    }


def _hyper_parameters(recipe: Recipe) -> str:
    """As comments, since an entry with a config is not tuned."""
    lines = {}
    for entry in recipe.entries:
        config = asdict(make(entry.method, **entry.config))
        lines[entry.label] = Default({key: item for key, item in config.items() if item is not None})
    return f"\n{HYPER_PARAMETERS}\n{written(lines, ())}"
