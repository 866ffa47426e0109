"""Tables in CSV files: numbers by column, with a column of labels and one of sites."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.limits import ARRAYS
from ttpfl.util.reading import read_bytes
from ttpfl.util.settings_kit import check_known

EMPTY = ("", "?", "NA", "nan", "NaN")  # cells without a value


class Table(NamedTuple):
    """The columns of a CSV file by name, as text."""

    path: Path
    columns: dict[str, list[str]]

    def text(self, name: str, option: str) -> list[str]:
        """The cells of a column that the user names with an option."""
        if len(self.columns) == 1 and ";" in next(iter(self.columns)):
            raise DataError(f"{self.path} has semicolons between its cells: separate them by commas")
        where = f"of {self.path.name} (name it with the option {option})"
        check_known(f"{option} column", name, self.columns, DataError, where)
        return self.columns[name]

    def numbers(self, names: Sequence[str]) -> NDArray[np.float32]:
        """The columns as numbers (rows, columns), NaN where a cell is empty."""
        for name in names:
            self.text(name, "feature")
        return np.array([self._numbers(name) for name in names], np.float32).T

    def _numbers(self, name: str) -> list[float]:
        values = []
        for row, cell in enumerate(self.columns[name]):
            try:
                value = np.nan if cell in EMPTY else float(cell)
                if abs(value) > float(np.finfo(np.float32).max):
                    raise ValueError
                values.append(value)
            except ValueError:
                raise DataError(
                    f"column {name!r} of {self.path} has {cell!r:.40} in row {row + 1}, which is no number: "
                    "encode it as numbers, or list other columns with the option features"
                ) from None
        return values


def read_csv(path: Path, names: Sequence[str] | None = None) -> Table:
    """Read a CSV file whose first line has the names of the columns, unless `names` are given."""
    content = read_bytes(path, ARRAYS)
    if content.startswith(b"PAR1"):
        raise DataError(f"{path} is a Parquet file: save it as CSV, or its columns as an npz file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}): save it again as UTF-8") from None
    rows = _rows(path, text)
    names = next(rows, None) if names is None else names
    if not names:
        raise DataError(f"{path} is empty: its first line must have the names of the columns")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} has two columns {repeated[0]!r}: give each its own name")
    columns: list[list[str]] = [[] for _ in names]
    for number, row in enumerate(rows, start=1):
        if not row:
            continue  # an empty line
        if len(row) != len(names):
            cells = f"{len(row)} cells instead of {len(names)}"
            raise DataError(f"row {number} of {path} has {cells}: correct it")
        for column, cell in zip(columns, row, strict=True):
            column.append(cell.strip())
    return Table(path, dict(zip(names, columns, strict=True)))


def _rows(path: Path, text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        raise DataError(f"{path} is not a valid CSV file ({error}): save it again") from None
