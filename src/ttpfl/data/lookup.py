"""Finding things by name, with a helpful error for names that do not exist."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from ttpfl.errors import DataError

Value = TypeVar("Value")


def find(what: str, name: str, known: Mapping[str, Value]) -> Value:
    """`known[name]`, or an error that lists the known names and the nearest one.

    >>> find("fruit", "appel", {"apple": 1, "pear": 2})
    Traceback (most recent call last):
    ...
    ttpfl.errors.DataError: there is no fruit 'appel'; did you mean 'apple'? Known: apple, pear
    """
    if isinstance(name, str) and name in known:
        return known[name]
    nearest = difflib.get_close_matches(str(name).lower(), known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    raise DataError(f"there is no {what} {name!r}{hint} Known: {', '.join(known)}")
