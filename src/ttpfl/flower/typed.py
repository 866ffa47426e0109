"""Whether the tables of a TOML file have values of the types that a dataclass says."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ttpfl.errors import FederationError

_WORDS = {str: "a text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}


def check_types(kind: type[Any], table: Mapping[str, Any]) -> None:
    """Raise a FederationError that names the first value of a wrong type; unknown names are not looked at.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Place:
    ...     host: str
    ...     ports: list[int] | None = None
    >>> check_types(Place, {"host": "a", "ports": [1]})
    >>> check_types(Place, {"host": "a", "ports": ["1"]})
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: ports is ['1']: it takes a list of a whole number
    """
    for name, type_ in get_type_hints(kind).items():
        if name in table and not _fits(table[name], type_):
            raise FederationError(f"{name} is {table[name]!r:.60}: it takes {_words(type_)}")


def _fits(value: Any, type_: Any) -> bool:
    if get_origin(type_) is UnionType:
        return any(_fits(value, one) for one in get_args(type_))
    if get_origin(type_) in (list, tuple):
        return isinstance(value, list) and all(_fits(one, get_args(type_)[0]) for one in value)
    if isinstance(value, bool) or type_ is float:
        return type_ is bool or (type(value) in (int, float) and abs(value) < 1e300)
    return isinstance(value, type_)


def _words(type_: Any) -> str:
    if get_origin(type_) is UnionType:
        return " or ".join(_words(one) for one in get_args(type_) if one is not NoneType)
    if get_origin(type_) in (list, tuple):
        return f"a list of {_words(get_args(type_)[0])}"
    return _WORDS.get(type_, str(type_))
