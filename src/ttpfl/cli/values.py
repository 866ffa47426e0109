"""`key=value` on the command line: from text to what the key takes."""

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, get_args, get_type_hints

from ttpfl.errors import DataError
from ttpfl.reading import parse_toml


def choices(texts: Iterable[str]) -> dict[str, Any]:
    """Fields of `Setting`, each read as its type says.

    >>> choices(["ratio=8", "samples=none", "in_distribution=true"])
    {'ratio': 8.0, 'samples': None, 'in_distribution': True}
    >>> choices(["seed=a"])
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: --set seed=a: it takes a whole number, such as 3
    """
    from ttpfl.data.lookup import find
    from ttpfl.data.setting import Setting

    types = get_type_hints(Setting)
    return {
        name: _typed(f"--set {name}={text}", text, find("choice", name, types))
        for name, text in _pairs("--set", texts).items()
    }


def options(texts: Iterable[str]) -> dict[str, Any]:
    """Options of a data set: numbers, true, false and lists as in TOML, anything else is text.

    >>> options(["image_size=[24, 32]", "seed=1", "name=art"])
    {'image_size': [24, 32], 'seed': 1, 'name': 'art'}
    """
    return {name: _plain(text) for name, text in _pairs("--option", texts).items()}


def merged(given: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """Options of their own (`None`: not given) together with those of `--set`.

    >>> merged({"shift": "label", "seed": None}, ["seed=3"])
    {'shift': 'label', 'seed': 3}
    """
    known = {name: value for name, value in given.items() if value is not None}
    added = choices(sets)
    if twice := sorted(known.keys() & added.keys()):
        raise DataError(f"{twice[0]} is given twice: as --{twice[0].replace('_', '-')} and in --set")
    return {**known, **added}


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for given in texts:
        name, equals, value = (part.strip() for part in given.partition("="))
        name = name.replace("-", "_")
        if not name or not equals:
            raise DataError(f"{option} {given}: it takes the form key=value")
        if name in pairs:
            raise DataError(f"{option} {given}: {name} is given twice")
        pairs[name] = value
    return pairs


def _typed(where: str, text: str, kind: Any) -> Any:
    kinds = get_args(kind) or (kind,)
    if NoneType in kinds and text.lower() == "none":
        return None
    (plain,) = (one for one in kinds if one is not NoneType)
    if plain is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if plain is not bool:
        try:
            return plain(text)
        except ValueError:
            pass
    takes = {bool: "true or false", int: "a whole number, such as 3", float: "a number, such as 0.5"}[plain]
    raise DataError(f"{where}: it takes {takes}" + (", or none" if NoneType in kinds else ""))


def _plain(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
