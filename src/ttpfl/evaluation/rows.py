"""`rows.jsonl`: the rows of a comparison, one per line as they come, each with a checksum of its own.

The first line says what all rows have in common. A line that is damaged or not complete is no row: it is
computed again. Files of format version 1 have no checksums.
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
"""One method at one client: figures, and under `cost` what differs from run to run."""


class Rows(NamedTuple):
    """What was found in a file."""

    setting: dict[str, Any]
    rows: dict[str, Row]
    """By key."""
    complete: bool
    """Whether every line was sound, and of this version."""


class Journal:
    """The rows of a comparison by key: the sound ones that an earlier run left, and those that are added.

    Args:
        folder: where they are kept; nowhere if None.
        setting: what all rows have in common; rows of another setting are not taken over.
    """

    def __init__(self, folder: str | PathLike[str] | None, setting: dict[str, Any]) -> None:
        self.rows: dict[str, Row] = {}
        self._path = None if folder is None else Path(folder) / ROWS
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        found = read_rows(self._path) or Rows(setting, {}, complete=False)
        _check_same(self._path, found.setting, setting)
        self.rows = found.rows
        if not found.complete:
            with written_in_one_step(self._path) as file:
                file.write(head_line(found.setting))
                file.writelines(row_line(key, row) for key, row in found.rows.items())

    def add(self, key: str, row: Row) -> None:
        """Keep a row as soon as it is there."""
        self.rows[key] = row
        if self._path is not None:
            with open(self._path, "ab") as file:
                file.write(row_line(key, row))


def _check_same(path: Path, head: dict[str, Any], setting: dict[str, Any]) -> None:
    if head != {name: setting[name] for name in head.keys() & setting}:
        raise DataError(f"{path} is of another comparison: choose another directory, or delete it")
    if unsaid := sorted(setting.keys() - head.keys()):
        log.warning(
            "%s was written by an earlier version, which did not note %s: make sure that it is as it was",
            path,
            ", ".join(unsaid),
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
    """The sound rows in a file; None if it is not there, or if nobody can tell what its rows belong to."""
    if not path.exists():
        return None
    head, *lines = map(_content, read_bytes(path).splitlines(keepends=True) or [b""])
    if isinstance(head, dict) and "format" not in head and CHECKSUM not in head and "model" in head:
        warn_of_old_format(str(path))
        old = [line for line in lines if _is_old_row(line)]
        return Rows(head, dict(old), complete=False)
    if not is_sound(head) or (head["format"], head["version"]) != (FORMAT, VERSION):
        log.warning("%s begins with a damaged line: its rows are computed again", path)
        return None
    sound = [line for line in lines if is_sound(line) and line.keys() == {"key", "row", CHECKSUM}]
    if len(sound) < len(lines):
        log.warning(
            "%d rows of %s are damaged or incomplete: they are computed again", len(lines) - len(sound), path
        )
    rows = {line["key"]: line["row"] for line in sound}
    return Rows(head["setting"], rows, complete=len(sound) == len(lines))


def _is_old_row(line: Any) -> bool:
    return (
        isinstance(line, list) and len(line) == 2 and isinstance(line[0], str) and isinstance(line[1], dict)
    )


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(sealed(content)).encode() + b"\n"


def _content(line: bytes) -> Any:
    """Of a line that was written in full; else None."""
    try:
        return parse_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
