"""Types of data set options, with rules that are checked before anything is loaded.

Your own data sets can use them too, or add rules or functions `check(name, value)`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from ttpfl.data.pictures import Size, as_size
from ttpfl.util.settings_kit import BOOLEAN, NUMBER, STRING, Rule, integer, one_of


def _are_names(value: Any) -> bool:
    if value is None:
        return True
    is_list = isinstance(value, Sequence) and not isinstance(value, str)  # a string is a sequence too
    return is_list and all(isinstance(name, str) for name in value)


def _are_numbers(value: Any) -> bool:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    return value is None or (bool(numbers) and all(map(NUMBER.holds, numbers)))


def _is_file_name(value: Any) -> bool:
    """Not a path: model files and manifests, which may come from others, name files too."""
    return value is None or (isinstance(value, str) and Path(value).name == value and value not in ("", ".."))


Truth = Annotated[bool, BOOLEAN]
Seed = Annotated[int, integer(0)]
ImageSize = Annotated[int | Size | None, lambda name, value: as_size(value)]
"""A side, or height and width."""
Names = Annotated[Sequence[str] | None, Rule("a list of names, in the order of their labels", _are_names)]
Columns = Annotated[Sequence[str] | None, Rule('a list of columns, such as ["age", "pulse"]', _are_names)]
Name = Annotated[str, STRING]
FileName = Annotated[str | None, Rule("the name of a file in the data directory", _is_file_name)]
Numbers = Annotated[
    Sequence[float] | float | None, Rule("a number, or a list with one per channel", _are_numbers)
]
Scale = Annotated[
    float | None,
    Rule("a number other than 0", lambda value: value is None or (NUMBER.holds(value) and value != 0)),
]
Missing = Annotated[str, one_of("error", "mean")]
"""Whether NaN is an error, or a missing value that the mean of its channel replaces."""
