"""Types of options that data sets have; each carries its rule, so that nothing is loaded to find a mistake.

Your own data set can do the same, with a rule or with a function that is called as `check(name, value)`.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from ttpfl.data.pictures import Size, as_size
from ttpfl.util.settings_kit import BOOLEAN, Rule, integer


def _are_names(value: Any) -> bool:
    if value is None:
        return True
    listed = isinstance(value, Sequence) and not isinstance(value, str)  # a string is a sequence of strings
    return listed and all(isinstance(one, str) for one in value)


Truth = Annotated[bool, BOOLEAN]
Seed = Annotated[int, integer(0)]
ImageSize = Annotated[int | Size | None, lambda name, value: as_size(value)]
"""A side, or height and width."""
Names = Annotated[Sequence[str] | None, Rule("a list of names, in the order of their labels", _are_names)]
