"""A recipe in full: what it says, and every default that it leaves."""

from dataclasses import asdict

from ttpfl.experiment.config import NO_KEYS, SECTIONS, Config, Tree, merged
from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.toml import Default, written
from ttpfl.methods import Method, make

HYPER_PARAMETERS = """\
# Hyper-parameters by label. Where tune.clients is above 0, methods that have a grid take what is best on
# source clients instead, but for entries with a config of their own."""


def complete(recipe: Recipe) -> str:
    """As TOML; a recipe that reads it has the same stages.

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
    rest = {key: said for key, said in recipe.tree.items() if key not in (*SECTIONS, "cases", "entries")}
    if not recipe.compares:
        return written({**top, **rest}, ()).strip()
    last: Tree = {key: recipe.tree[key] for key in ("cases", "entries") if key in recipe.tree}
    said = written({**top, **rest, **_sections(recipe), **last}, ())
    return said + _hyper_parameters(recipe).rstrip()


def _sections(recipe: Recipe) -> Tree:
    config = Config.of({name: recipe.tree.get(name, {}) for name in SECTIONS}, recipe.seeds[0])
    sections = {name: asdict(getattr(config, name)) for name in SECTIONS}
    # The clients' stage is found by what is said about them, so that their defaults must not become that.
    sections["data"] = {"name": config.data.name, **merged(_left(config.data.defaults()), config.data.said())}
    return {
        name: {key: said for key, said in section.items() if key not in NO_KEYS}
        for name, section in sections.items()
    }


def _left(defaults: Tree) -> Tree:
    return {key: _left(said) if isinstance(said, dict) else Default(said) for key, said in defaults.items()}


def _hyper_parameters(recipe: Recipe) -> str:
    """As comments: an entry that says some of them in its config is not tuned."""
    lines = {entry.label: Default(_set(make(entry.method, **entry.config))) for entry in recipe.entries}
    return f"\n{HYPER_PARAMETERS}\n{written(lines, ())}"


def _set(method: Method) -> Tree:
    return {name: value for name, value in asdict(method).items() if value is not None}  # TOML has no null
