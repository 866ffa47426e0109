"""What values a hyper-parameter may have."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any


@dataclass(frozen=True)
class Limit:
    """A test of a value, and what it must be in words."""

    words: str
    holds: Callable[[Any], bool]


def number(words: str, holds: Callable[[float], bool]) -> Limit:
    """A finite number for which something holds.

    >>> above_one = number("above 1", lambda value: value > 1)
    >>> above_one.words, [above_one.holds(value) for value in (2, 1.5, 1, float("nan"), True, "2")]
    ('a number above 1', [True, True, False, False, False, False])
    """
    return Limit(
        f"a number {words}",
        lambda value: _is_a(Real, value) and math.isfinite(value) and holds(value),
    )


def whole_number(least: int) -> Limit:
    """A whole number that is not below the least."""
    return Limit(f"a whole number, {least} or more", lambda value: _is_a(Integral, value) and value >= least)


def one_of(*known: str) -> Limit:
    """One of these words."""
    return Limit(f"one of {', '.join(known)}", lambda value: value in known)


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # Python's bool counts as a number


NUMBER = number("that is finite", lambda value: True)
NOT_NEGATIVE = number("of at least 0", lambda value: value >= 0)
SHARE = number("from 0 to 1", lambda value: 0 <= value <= 1)
SWITCH = Limit("true or false", lambda value: isinstance(value, bool))
TEXT = Limit("a text", lambda value: isinstance(value, str))
