"""Reading untrusted files: only regular files, and only within a limit."""

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable
from io import BufferedReader
from os import PathLike
from typing import Any

from ttpfl.util.limits import TEXT, Limit

DEEPEST = 64
"""Levels of nested tables and lists."""
_PART = 2**20  # bytes


def open_regular(path: str | PathLike[str]) -> BufferedReader:
    """Open a regular file for reading.

    Raise an OSError for FIFOs, which would block, and devices, which might never end.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
        ...
    OSError: [Errno 22] not a regular file; FIFOs and devices are not read: '/dev/zero'
    """
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file; FIFOs and devices are not read", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def regular_size(path: str | PathLike[str]) -> int:
    """Size of a regular file in bytes; raise an OSError for anything else."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def read_bytes(path: str | PathLike[str], limit: Limit = TEXT) -> bytes:
    """Read a regular file within a limit."""
    with open_regular(path) as file:
        limit.check(os.fstat(file.fileno()).st_size, path)
        content = bytearray()
        while part := file.read(_PART):  # the file may be, or become, larger than its stated size
            content += part
            limit.check(len(content), path)
        return bytes(content)


def read_json(path: str | PathLike[str]) -> Any:
    """Read a JSON file; raise a ValueError if it is not valid JSON."""
    return parse_json(read_bytes(path))


def parse_json(text: bytes | str) -> Any:
    """Parse JSON; raise a ValueError if it is not valid.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
        ...
    ValueError: nested too deeply
    """
    return _parsed(json.loads, text)


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a TOML file; raise a ValueError if it is not valid TOML."""
    return parse_toml(read_bytes(path).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise a ValueError if it is not valid.

    >>> parse_toml("value = " + "9" * 5000)
    Traceback (most recent call last):
        ...
    ValueError: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; ...
    """
    table: dict[str, Any] = _parsed(tomllib.loads, text)
    return table


def toml_or_text(text: str) -> Any:
    """Parse a TOML value; anything else is a string without quotation marks.

    >>> toml_or_text("[24, 32]"), toml_or_text("art")
    ([24, 32], 'art')
    """
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _parsed(parse: Callable[[Any], Any], text: bytes | str) -> Any:
    """Parse JSON or TOML that is not nested too deeply for recursive functions."""
    try:
        content = parse(text)  # invalid text and huge numbers raise a ValueError
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return content
    raise ValueError("nested too deeply")
