"""`rows.jsonl`: the finished rows of a comparison, one per line, each with a checksum.

The first line contains what all rows have in common. Damaged or incomplete rows are computed again. Files of
format version 1 have no checksums.
"""

import json
import logging
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from ttpfl.errors import DataError
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import parse_json, read_bytes

log = logging.getLogger("ttpfl")

ROWS = "rows.jsonl"
FORMAT, VERSION = "ttpfl.rows", 2

Row = dict[str, Any]
"""One method at one client: metrics, and under `cost` what varies between runs."""


class Rows(NamedTuple):
    """The content of a file."""

    setting: dict[str, Any]
    rows: dict[str, Row]  # by key
    complete: bool  # whether every line is intact and of this version


class Journal:
    """The rows of a comparison by key: intact ones of an earlier run, and new ones.

    Args:
        folder: Where to store them; nowhere if None.
        setting: What all rows have in common; it must match that of stored rows.
    """

    def __init__(self, folder: str | PathLike[str] | None, setting: dict[str, Any]) -> None:
        self.rows: dict[str, Row] = {}
        self._path = None if folder is None else Path(folder) / ROWS
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        stored = read_rows(self._path) or Rows(setting, {}, complete=False)
        _check_same(self._path, stored.setting, setting)
        self.rows = stored.rows
        if not stored.complete:
            with written_in_one_step(self._path) as file:
                file.write(head_line(stored.setting))
                file.writelines(row_line(key, row) for key, row in stored.rows.items())

    def add(self, key: str, row: Row) -> None:
        """Store a finished row."""
        self.rows[key] = row
        if self._path is not None:
            with open(self._path, "ab") as file:
                file.write(row_line(key, row))


def _check_same(path: Path, head: dict[str, Any], setting: dict[str, Any]) -> None:
    if head != {name: setting[name] for name in head.keys() & setting}:
        raise DataError(f"{path} belongs to another comparison: choose another directory, or delete it")
    if missing := ", ".join(sorted(setting.keys() - head.keys())):
        log.warning(
            "%s is of an earlier version, which did not record %s: check that it matches", path, missing
        )


def head_line(setting: dict[str, Any]) -> bytes:
    """The first line of a file."""
    return _line({"format": FORMAT, "version": VERSION, "setting": setting})


def row_line(key: str, row: Row) -> bytes:
    r"""A row as a line.

    >>> row_line("none at target-0", {"accuracy": 0.5})
    b'{"key": "none at target-0", "row": {"accuracy": 0.5}, "checksum": "..."}\n'
    """
    return _line({"key": key, "row": row})


def read_rows(path: Path) -> Rows | None:
    """The intact rows of a file; None if it does not exist or its first line is damaged."""
    if not path.exists():
        return None
    head, *lines = map(_content, read_bytes(path).splitlines(keepends=True) or [b""])
    if isinstance(head, dict) and "format" not in head and CHECKSUM not in head and "model" in head:
        warn_of_old_format(str(path))
        return Rows(head, dict(line for line in lines if _is_old_row(line)), complete=False)
    if not is_sound(head) or (head["format"], head["version"]) != (FORMAT, VERSION):
        log.warning("the first line of %s is damaged: its rows are computed again", path)
        return None
    intact = [line for line in lines if is_sound(line) and line.keys() == {"key", "row", CHECKSUM}]
    if damaged := len(lines) - len(intact):
        log.warning("%d rows of %s are damaged or incomplete: they are computed again", damaged, path)
    return Rows(head["setting"], {line["key"]: line["row"] for line in intact}, complete=not damaged)


def _is_old_row(line: Any) -> bool:
    return (
        isinstance(line, list) and len(line) == 2 and isinstance(line[0], str) and isinstance(line[1], dict)
    )


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(sealed(content)).encode() + b"\n"


def _content(line: bytes) -> Any:
    """The content of a complete line; otherwise None."""
    try:
        return parse_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
