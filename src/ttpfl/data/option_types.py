"""Kinds of options that data sets have; each carries its check, so that nothing is loaded to find a mistake.

A data set of one's own can do the same: `Annotated[int, check]` has `check(name, value)` called.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any

from ttpfl.data.pictures import Size, as_size
from ttpfl.errors import DataError


def _check_truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise DataError(f"{name} is {value!r}: it must be true or false")


def _check_seed(name: str, value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise DataError(f"{name} is {value!r}: it must be a whole number from 0")


def _check_size(name: str, value: Any) -> None:
    as_size(value)


def _check_names(name: str, value: Any) -> None:
    listed = isinstance(value, Sequence) and all(isinstance(one, str) for one in value)
    if value is not None and (not listed or isinstance(value, str)):  # a text is a sequence of texts
        raise DataError(f"{name} is {value!r}: it must be a list of names, in the order of their labels")


Truth = Annotated[bool, _check_truth]
Seed = Annotated[int, _check_seed]
ImageSize = Annotated[int | Size | None, _check_size]
"""A side, or height and width."""
Names = Annotated[Sequence[str] | None, _check_names]
