"""Whether a value that was read from JSON has the shape that a type says."""

from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from ttpfl.errors import ReportError

_WORDS = {str: "text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}


def check(value: object, shape: Any, place: str) -> None:
    """A ReportError if `value` has another shape; `place` is how messages call it.

    >>> check({"a": [1, 2.5]}, dict[str, list[float]], "results.json")
    >>> check([1, "2"], list[int], "numbers")
    Traceback (most recent call last):
        ...
    ttpfl.errors.ReportError: numbers[1] is '2', but should be a whole number
    """
    inner = get_args(shape)
    if shape is Any or (value is None and NoneType in inner):
        return
    if is_typeddict(shape):
        _check_keys(value, shape, place)
    elif get_origin(shape) is UnionType:  # always with None
        check(value, inner[0], place)
    elif get_origin(shape) is list:
        for position, item in enumerate(_of(list, value, place)):
            check(item, inner[0], f"{place}[{position}]")
    elif get_origin(shape) is dict:
        for key, item in _of(dict, value, place).items():
            check(item, inner[1], f"{place}.{key}")
    else:
        _of(shape, value, place)


def _check_keys(value: object, shape: Any, place: str) -> None:
    given = _of(dict, value, place)
    for key, kind in get_type_hints(shape).items():
        if key in given:
            check(given[key], kind, f"{place}.{key}")
        elif key in shape.__required_keys__:
            raise ReportError(f"{place} has no {key!r}: is it the file of another command or version?")


def _of(kind: type, value: Any, place: str) -> Any:
    accepted = (int, float) if kind is float else kind
    huge = isinstance(value, int) and abs(value) >= 2**63  # more than any count or figure is
    if isinstance(value, bool) or not isinstance(value, accepted) or huge:
        shown = repr(value) if len(repr(value)) < 40 else repr(value)[:40] + "…"
        raise ReportError(f"{place} is {shown}, but should be {_WORDS[kind]}")
    return value
