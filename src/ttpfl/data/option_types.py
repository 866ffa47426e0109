"""Types of data set options, with rules that are checked before anything is loaded.

Your own data sets can use them too, or add rules or functions `check(name, value)`.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from ttpfl.data.pictures import Size, as_size
from ttpfl.util.settings_kit import BOOLEAN, Rule, integer


def _are_names(value: Any) -> bool:
    if value is None:
        return True
    is_list = isinstance(value, Sequence) and not isinstance(value, str)  # a string is a sequence too
    return is_list and all(isinstance(name, str) for name in value)


Truth = Annotated[bool, BOOLEAN]
Seed = Annotated[int, integer(0)]
ImageSize = Annotated[int | Size | None, lambda name, value: as_size(value)]
"""A side, or height and width."""
Names = Annotated[Sequence[str] | None, Rule("a list of names, in the order of their labels", _are_names)]
