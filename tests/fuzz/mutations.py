"""Seeded damage: to bytes, to JSON, to TOML, and to the header of a safetensors file."""

import json
import re
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from ttpfl.util.checksum import CHECKSUM, sealed

Mutation = Callable[[bytes, Random], bytes]

DEEP = "deep-c0ffee"  # stands for nesting that Python's own writer could not write
NUMBERS = [
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    10**30,
    10**400,
    1.5,
    -0.0,
    1e308,
    1e-308,
    float("inf"),
    float("nan"),
]
VALUES = [
    None,
    True,
    False,
    "",
    "x",
    "\ud800",
    "\x1b[2J",
    "x" * 10_000,
    DEEP,
    [],
    [[]],
    {},
    {"": None},
    *NUMBERS,
]
TOML = [
    "", "true", "-1", "0", "9" * 5000, "9" * 25, "1e400", "inf", "nan", "1.5", '""', '"x"', '"\\u001b[2J"',
    "[]", "[[]]", "{}", "1979-05-27", "[" * 5000 + "]" * 5000, "{a=" * 900 + "1" + "}" * 900,
    '"' + "x" * 10_000 + '"', '"../../../etc/passwd"', "[1, 'two', 3.0]", "0x7fffffffffffffff", '"\\ud800"',
    "'''",
]  # fmt: skip


def damaged(data: bytes, luck: Random) -> bytes:
    """One to three changes to bytes."""
    for _ in range(luck.choice([1, 1, 1, 2, 3])):
        data = luck.choice(BYTES)(data, luck)
    return data


def _place(data: bytes, luck: Random) -> tuple[int, int]:
    begin = luck.randrange(len(data) + 1)
    return begin, min(len(data), begin + luck.choice([1, 2, 8, 64, 512]))


def flip(data: bytes, luck: Random) -> bytes:
    """One bit."""
    if not data:
        return data
    place = luck.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << luck.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, luck: Random) -> bytes:
    """The end is missing."""
    return data[: luck.randrange(len(data) + 1)]


def insert(data: bytes, luck: Random) -> bytes:
    """Random bytes in between."""
    begin, end = _place(data, luck)
    return data[:begin] + luck.randbytes(end - begin + 1) + data[begin:]


def delete(data: bytes, luck: Random) -> bytes:
    """Some bytes are missing."""
    begin, end = _place(data, luck)
    return data[:begin] + data[end:]


def repeat(data: bytes, luck: Random) -> bytes:
    """A part comes twice."""
    begin, end = _place(data, luck)
    return data[:end] + data[begin:]


def overwrite(data: bytes, luck: Random) -> bytes:
    """A part is all zeros, all ones, or random."""
    begin, end = _place(data, luck)
    return data[:begin] + luck.choice([b"\x00", b"\xff", luck.randbytes(1)]) * (end - begin) + data[end:]


BYTES: list[Mutation] = [flip, flip, flip, cut, insert, delete, repeat, overwrite]


def changed(value: Any, luck: Random) -> Any:
    """A copy of a JSON value with one thing different, at a random place."""
    if luck.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        return _other(value, luck)
    if isinstance(value, list):
        place = luck.randrange(len(value))
        how = luck.random()
        if how < 0.1:
            return value[:place] + value[place + 1 :]
        if how < 0.2:
            return [*value, value[place]]
        return [*value[:place], changed(value[place], luck), *value[place + 1 :]]
    key = luck.choice(list(value))
    how = luck.random()
    if how < 0.1:
        return {name: one for name, one in value.items() if name != key}
    if how < 0.2:
        return {**value, luck.choice(["new", "", "\ud800", key + "x"]): luck.choice(VALUES)}
    return {**value, key: changed(value[key], luck)}


def _other(value: Any, luck: Random) -> Any:
    if type(value) in (int, float) and luck.random() < 0.5:
        return luck.choice([value + 1, -value, value * 1.1, str(value)])
    return luck.choice(VALUES)


def text_of(value: Any) -> str:
    """As JSON, with the nesting that stands for itself."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def json_changed(data: bytes, luck: Random) -> bytes:
    """Another value at a random place of a JSON file; what cannot be parsed any more stays."""
    try:
        return text_of(changed(json.loads(data), luck)).encode()
    except (ValueError, RecursionError):
        return data


def json_resealed(data: bytes, luck: Random) -> bytes:
    """The same, by somebody who knows the format: the checksum is right."""
    found = changed({key: one for key, one in json.loads(data).items() if key != CHECKSUM}, luck)
    return text_of(_sealed(found)).encode()


def _sealed(found: Any, tensors: Any = None) -> Any:
    return sealed(found, tensors) if isinstance(found, dict) else found


def json_lines_changed(data: bytes, luck: Random) -> bytes:
    """One line of a file with a JSON value per line."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    place = luck.randrange(len(lines))
    return b"".join([*lines[:place], json_changed(lines[place], luck) + b"\n", *lines[place + 1 :]])


def toml_changed(data: bytes, luck: Random) -> bytes:
    """Another value for a random key, a line more, or a line less."""
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if re.match(r"\s*[\w.\"-]+\s*=", line)]
    if not places:
        return data
    place, how = luck.choice(places), luck.random()
    if how < 0.1:
        lines.insert(luck.choice(places), lines[place])
    elif how < 0.2:
        del lines[place]
    elif how < 0.3:
        lines.insert(place, f"{luck.choice(['new', 'seed', '.'.join('a' * 3000)])} = {luck.choice(TOML)}\n")
    else:
        lines[place] = lines[place].partition("=")[0] + "= " + luck.choice(TOML) + "\n"
    return "".join(lines).encode("utf-8", "surrogateescape")


def zip_changed(data: bytes, luck: Random) -> bytes:
    """Another compression method or size, in the directory of a zip archive or in a member's own header."""
    signature, place = luck.choice([(b"PK\x03\x04", 0), (b"PK\x01\x02", 2)])
    members = [found.start() for found in re.finditer(re.escape(signature), data)]
    offset, layout = luck.choice([(8, "<H"), (18, "<L"), (22, "<L")])  # method, packed size, size
    changed_data, value = bytearray(data), luck.choice([0, 8, 9, 12, 14, 93, 1000, 60_000])
    struct.pack_into(layout, changed_data, luck.choice(members) + place + offset, value)
    return bytes(changed_data)


def header_changed(data: bytes, luck: Random) -> bytes:
    """Another value in the header of a safetensors file, or in the card that it holds."""
    try:
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        if luck.random() < 0.5:
            header = changed(header, luck)
        else:
            card = json.loads(header["__metadata__"]["ttpfl"])
            header["__metadata__"]["ttpfl"] = text_of(changed(card, luck))
        text = text_of(header).encode()
    except (ValueError, KeyError, TypeError, struct.error, RecursionError):
        return data
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def card_resealed(data: bytes, luck: Random) -> bytes:
    """Another value in the card of a safetensors file, by somebody who knows how its checksum is made."""
    from safetensors.torch import load, save

    (size,) = struct.unpack("<Q", data[:8])
    card = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ttpfl"])
    tensors = load(data)
    covered = {"": tensors["rates"]} if card.get("format") == "ttpfl.rates" else tensors
    found = _sealed(changed({key: one for key, one in card.items() if key != CHECKSUM}, luck), covered)
    return save(tensors, metadata={"ttpfl": text_of(found)})
