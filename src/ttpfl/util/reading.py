"""Reading files that anybody may have written: regular files only, and no more than a limit allows."""

import errno
import json
import os
import stat
import tomllib
from io import BufferedReader
from os import PathLike
from typing import Any

from ttpfl.util.limits import TEXT, Limit

DEEPEST = 64
"""Tables and lists inside each other."""
_PART = 2**20  # bytes


def open_regular(path: str | PathLike[str]) -> BufferedReader:
    """The file at `path`, opened for reading.

    A FIFO would block and a device might never end, so both are an OSError.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
        ...
    OSError: [Errno 22] not a regular file; FIFOs and devices are not read: '/dev/zero'
    """
    # Without O_NONBLOCK, opening a FIFO waits for somebody who writes to it.
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
    """The size in bytes of a regular file; an OSError if it is anything else, or not there."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def read_bytes(path: str | PathLike[str], limit: Limit = TEXT) -> bytes:
    """The content of a regular file within a limit."""
    with open_regular(path) as file:
        limit.check(os.fstat(file.fileno()).st_size, path)
        content = bytearray()
        while part := file.read(_PART):  # it may have, or get, more than its stated size
            content += part
            limit.check(len(content), path)
        return bytes(content)


def read_json(path: str | PathLike[str]) -> Any:
    """The content of a JSON file; a ValueError if it is none."""
    return parse_json(read_bytes(path))


def parse_json(text: bytes | str) -> Any:
    """JSON as Python values; a ValueError for everything that is none.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
        ...
    ValueError: nested too deeply
    """
    try:
        return _not_too_deep(json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """The content of a TOML file; a ValueError if it is none."""
    return parse_toml(read_bytes(path).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """TOML as Python values; a ValueError for everything that is none.

    >>> parse_toml("value = " + "9" * 5000)
    Traceback (most recent call last):
        ...
    ValueError: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; ...
    """
    try:
        found = tomllib.loads(text)  # its own error is a ValueError, and so is that of a huge number
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _not_too_deep(found)
    return found


def toml_or_text(text: str) -> Any:
    """A value as TOML writes it; anything else is text without quotation marks.

    >>> toml_or_text("[24, 32]"), toml_or_text("art")
    ([24, 32], 'art')
    """
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _not_too_deep(value: Any) -> Any:
    """The value, if functions that call themselves can walk through it."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")
