"""Parse `key=value` arguments."""

from collections.abc import Iterable, Mapping
from typing import Any

from ttpfl.cli.words import option_name
from ttpfl.errors import DataError
from ttpfl.util.reading import toml_or_text
from ttpfl.util.settings_kit import find, from_text


def choices(texts: Iterable[str]) -> dict[str, Any]:
    """Fields of `PopulationConfig` and `NaturalConfig`, each parsed according to its type.

    >>> choices(["ratio=8", "samples=none", "in_distribution=true"])
    {'ratio': 8.0, 'samples': None, 'in_distribution': True}
    >>> choices(["seed=a"])
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: --set seed must be an integer, got 'a'
    """
    from ttpfl.data.own_clients import client_option_types

    types = client_option_types()
    return {
        name: from_text(f"--set {name}", text, find("population option", name, types, DataError), DataError)
        for name, text in _pairs("--set", texts).items()
    }


def options(texts: Iterable[str]) -> dict[str, Any]:
    """Options of a data set: TOML values, otherwise text.

    >>> options(["image_size=[24, 32]", "seed=1", "name=art"])
    {'image_size': [24, 32], 'seed': 1, 'name': 'art'}
    """
    return {name: toml_or_text(text) for name, text in _pairs("--option", texts).items()}


def merged(values: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """Values of separate options (None if omitted) and those of `--set`.

    >>> merged({"shift": "label", "seed": None}, ["seed=3"])
    {'shift': 'label', 'seed': 3}
    """
    explicit = {name: value for name, value in values.items() if value is not None}
    added = choices(sets)
    if twice := sorted(explicit.keys() & added.keys()):
        raise DataError(f"{twice[0]} is given twice: as {option_name(twice[0])} and in --set")
    return {**explicit, **added}


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not name or not equals:
            raise DataError(f"{option} {text}: it takes the form key=value")
        if name in pairs:
            raise DataError(f"{option} {text}: {name} is given twice")
        pairs[name] = value
    return pairs
