"""Validation of values and names, with error messages of the same form everywhere.

A `Rule` defines the valid values. Call it directly (`Rule.check`), put it in the metadata of a field
(`check_fields`), or in a type annotation such as `Annotated[int, integer(1)]` (`as_type`). The caller chooses
the type of the error.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

Value = TypeVar("Value")
Error = type[Exception]

LONGEST = 60  # characters of a value that an error shows


class FilledIn:
    """Marks a value that follows from other settings; `dataclasses.replace` derives it anew."""


class FilledInt(FilledIn, int):
    """An integer that follows from other settings."""


class FilledFloat(FilledIn, float):
    """A number that follows from other settings."""


class FilledText(FilledIn, str):
    """A text that follows from other settings."""


def must_be(name: str, words: str, value: object, remedy: str = "") -> str:
    """Format the error message for a value.

    >>> must_be("lr", "a positive number", -1)
    'lr must be a positive number, got -1'
    """
    shown = repr(value)
    return f"{name} must be {words}, got {shown if len(shown) <= LONGEST else shown[:LONGEST] + '…'}{remedy}"


@dataclass(frozen=True)
class Rule:
    """A condition on a value, as text and as a predicate.

    >>> POSITIVE.check(ValueError, "; leave it out for no limit", rate=0.5, epsilon=-2)
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be a positive number, got -2; leave it out for no limit
    """

    words: str
    holds: Callable[[Any], bool]
    choices: tuple[Any, ...] = ()

    def check(self, error: Error, remedy: str = "", /, **values: Any) -> None:
        """Raise an error that names the first invalid value."""
        for name, value in values.items():
            if not self.holds(value):
                raise error(must_be(name, self.words, value, remedy or _did_you_mean(value, self.choices)))


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)  # a bool is an int in Python


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def integer(least: int | None = None, most: int | None = None) -> Rule:
    """An integer within bounds.

    >>> [integer(*bounds).words for bounds in [(0,), (1,), (2,), (1, 5)]]
    ['a non-negative integer', 'a positive integer', 'an integer of at least 2', 'an integer from 1 to 5']
    """
    names = {None: "an integer", 0: "a non-negative integer", 1: "a positive integer"}
    words = names.get(least, f"an integer of at least {least}")
    words = words if most is None else f"an integer from {least} to {most}"
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    return Rule(words, lambda value: _is_integer(value) and low <= value <= high)


def number(words: str, holds: Callable[[float], bool]) -> Rule:
    """A finite number with a further condition.

    >>> above_one = number("above 1", lambda value: value > 1)
    >>> above_one.words, [above_one.holds(value) for value in (2, 1.5, 1, float("nan"), True, "2")]
    ('a number above 1', [True, True, False, False, False, False])
    """
    return Rule(f"a number {words}", lambda value: _is_number(value) and holds(value))


def one_of(*choices: Any) -> Rule:
    """One of several choices.

    >>> one_of("mean", "median", "krum").check(ValueError, average="medain")
    Traceback (most recent call last):
        ...
    ValueError: average must be 'mean', 'median' or 'krum', got 'medain'; did you mean 'median'?
    """
    *first, last = map(repr, choices)
    words = f"{', '.join(first)} or {last}" if first else last
    return Rule(words, lambda value: value in choices, choices)


INTEGER = integer()
NUMBER = Rule("a finite number", _is_number)
POSITIVE = Rule("a positive number", lambda value: _is_number(value) and value > 0)
NOT_NEGATIVE = Rule("a non-negative number", lambda value: _is_number(value) and value >= 0)
FRACTION = number("from 0 to 1", lambda value: 0 <= value <= 1)
PROBABILITY = number("above 0 and below 1", lambda value: 0 < value < 1)
BOOLEAN = Rule("true or false", lambda value: isinstance(value, bool))
STRING = Rule("a string", lambda value: isinstance(value, str))
LIST = Rule("a list", lambda value: isinstance(value, (list, tuple)))
TABLE = Rule("a table of keys and values", lambda value: isinstance(value, dict))
Types = Mapping[Any, Rule]
TYPES: Types = {bool: BOOLEAN, int: INTEGER, float: NUMBER, str: STRING, list: LIST, dict: TABLE}


def check_fields(instance: Any, error: Error) -> None:
    """Check the fields of a dataclass that have a rule under `limit` in their metadata.

    None is valid if it is the default.
    """
    for field in fields(instance):
        rule, value = field.metadata.get("limit"), getattr(instance, field.name)
        if rule is not None and not (value is None and field.default is None):
            rule.check(error, **{field.name: value})


def as_type(name: str, value: Any, annotation: Any, error: Error, types: Types = TYPES) -> Any:
    """Check that a value has the annotated type, also inside lists and tables, and return it.

    Numbers are returned as int or float. `types` are the rules of the plain types.

    >>> as_type("ratio", 2, float | None, ValueError)
    2.0
    >>> as_type("ports", [1, "2"], list[int], ValueError)
    Traceback (most recent call last):
        ...
    ValueError: ports[1] must be an integer, got '2'
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        pass
    elif origin is Annotated:
        for rule in inner[1:]:
            rule.check(error, **{name: value})
        value = as_type(name, value, inner[0], error, types)
    elif origin in (Union, UnionType):
        value = _as_one_type(name, value, inner, error, types)
    elif is_typeddict(annotation):
        _check_keys(name, value, annotation, error, types)
    elif origin in (list, tuple):
        types[list].check(error, **{name: value})
        for position, item in enumerate(value):
            as_type(f"{name}[{position}]", item, inner[0], error, types)
    elif origin is dict:
        types[dict].check(error, **{name: value})
        for key, item in value.items():
            as_type(f"{name}.{key}", item, inner[1], error, types)
    else:
        types[annotation].check(error, **{name: value})
        value = annotation(value) if annotation in (int, float) else value
    return value


def _as_one_type(name: str, value: Any, annotations: Iterable[Any], error: Error, types: Types) -> Any:
    if value is None and NoneType in annotations:
        return None
    kinds = [kind for kind in annotations if kind is not NoneType]
    if len(kinds) == 1:
        return as_type(name, value, kinds[0], error, types)
    rules = [types[get_origin(kind) or kind] for kind in kinds]
    for kind, rule in zip(kinds, rules, strict=True):
        if rule.holds(value):
            return as_type(name, value, kind, error, types)
    raise error(must_be(name, " or ".join(rule.words for rule in rules), value))


def _check_keys(name: str, value: Any, shape: Any, error: Error, types: Types) -> None:
    types[dict].check(error, **{name: value})
    for key, annotation in get_type_hints(shape).items():
        if key in value:
            as_type(f"{name}.{key}", value[key], annotation, error, types)
        elif key in shape.__required_keys__:
            raise error(f"{name} has no {key!r}: is it the file of another command or version?")


def as_table(place: str, table: Any, annotations: Mapping[str, Any], error: Error) -> dict[str, Any]:
    """Check that a table has only known keys and that its values have the annotated types.

    >>> as_table("train", {"round": 2}, {"rounds": int, "lr": float}, ValueError)
    Traceback (most recent call last):
        ...
    ValueError: unknown key 'round' in train; did you mean 'rounds'? Available: rounds, lr
    """
    TABLE.check(error, **{place: table})
    for key in table:
        check_known("key", key, annotations, error, f"in {place}" if place else "")
    above = f"{place}." if place else ""
    return {key: as_type(above + key, value, annotations[key], error) for key, value in table.items()}


def from_text(name: str, text: str, annotation: Any, error: Error) -> Any:
    """Parse a command-line argument as bool, int, float or str, optionally with None.

    >>> from_text("samples", "none", int | None, ValueError), from_text("ratio", "8", float, ValueError)
    (None, 8.0)
    """
    kinds = get_args(annotation) or (annotation,)
    lower = text.lower()
    if NoneType in kinds and lower == "none":
        return None
    kind = next(kind for kind in kinds if kind is not NoneType)
    try:
        return {"true": True, "false": False}[lower] if kind is bool else kind(text)
    except (KeyError, ValueError):
        words = TYPES[kind].words + (" or none" if NoneType in kinds else "")
        raise error(must_be(name, words, text)) from None


def find(what: str, name: Any, choices: Mapping[str, Value], error: Error, place: str = "") -> Value:
    """Return `choices[name]`, or raise the error of `check_known`."""
    check_known(what, name, choices, error, place)
    return choices[name]


def check_known(what: str, name: Any, choices: Iterable[str], error: Error, place: str = "") -> None:
    """Raise an error with the nearest known name and all others if a name is unknown.

    >>> check_known("fruit", "appel", ["apple", "pear"], ValueError, "in the basket")
    Traceback (most recent call last):
        ...
    ValueError: unknown fruit 'appel' in the basket; did you mean 'apple'? Available: apple, pear
    """
    names = list(choices)
    if isinstance(name, str) and name in names:
        return
    subject = f"unknown {what} {name!r:.{LONGEST}}" + (f" {place}" if place else "")
    if not names:
        raise error(f"{subject}; there are none")
    raise error(f"{subject}{_did_you_mean(name, names) or '.'} Available: {', '.join(names)}")


def _did_you_mean(name: object, choices: Iterable[object]) -> str:
    def plain(text: object) -> str:
        return str(text)[:LONGEST].lower().replace("_", "-")  # comparing long strings is slow

    candidates = {plain(choice): choice for choice in choices if choice}
    nearest = get_close_matches(plain(name), candidates, n=1)
    return f"; did you mean {candidates[nearest[0]]!r}?" if nearest else ""
