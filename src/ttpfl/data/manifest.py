"""What a population is made of, as a JSON file: written once, compared with every time."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl._version import __version__
from ttpfl.data.clients import Client, Labels, Population, SourceClient, TargetLabels
from ttpfl.data.partition import Ids
from ttpfl.errors import DataError, TtpflError
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import read_json

FORMAT = 2
UNSEALED = 1  # the format before checksums
LISTED = 1000
COLUMNS = ("id", "domain", "corruption", "severity", "classes", "validation", "sha256")

Row = tuple[str, str, str | None, int, list[int], int, str]
"""A client: `classes` counts its images of each class, `validation` how many are held back, `sha256` is
of all its images' ids in its own order."""


@dataclass(frozen=True)
class Manifest:
    """What a population is made of; equal for equal populations."""

    config: dict[str, Any]
    data: dict[str, Any]
    """Name, options and number of the images, and a hash of all of them."""
    source: list[Row]
    target: list[Row]
    made_with: dict[str, str]

    @property
    def digest(self) -> str:
        """A hash of everything that decides about the clients' images."""
        decisive = [self.config, self.data, self.source, self.target]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file in one step, one client per line."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as file:
            file.write(self._text().encode())

    def _text(self) -> str:
        head = {
            "format": FORMAT,
            "made_with": self.made_with,
            "setting": self.config,
            "data": self.data,
            "columns": COLUMNS,
        }
        whole = sealed({**head, "source": self.source, "target": self.target})
        head[CHECKSUM] = whole[CHECKSUM]
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        for name, rows in (("source", self.source), ("target", self.target)):
            lines.append(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: str | PathLike[str]) -> Manifest:
    """The manifest in a file."""
    try:
        found = read_json(path)
        if found["format"] not in (UNSEALED, FORMAT):
            raise DataError(
                f"{path} has format {found['format']!r}, but this version reads {FORMAT}: "
                "make the population again"
            )
        if found["format"] == UNSEALED and CHECKSUM not in found:
            warn_of_old_format(str(path))
        elif not is_sound(found):
            raise DataError(f"{path} is damaged (its checksum does not match): make the population again")
        rows = {part: [_read_row(row) for row in found[part]] for part in ("source", "target")}
        config, data, versions = (dict(found[part]) for part in ("setting", "data", "made_with"))
        return Manifest(
            config,
            {**data, "name": data["name"], "options": dict(data["options"])},
            **rows,
            made_with=versions,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TtpflError):
            raise
        raise DataError(f"{path} is not a sound manifest ({error!r}): make the population again") from error


def _read_row(values: list[Any]) -> Row:
    name, domain, corruption, severity, classes, held_back, ids = values
    return (name, domain, corruption, severity, classes, held_back, ids)


def describe(
    population: Population, answers: TargetLabels, config: dict[str, Any], data: dict[str, Any]
) -> Manifest:
    """What a population is made of, looked up in the population itself.

    Of more than `LISTED` clients that draw their images anew each time, only so many are listed, evenly
    spaced: what they draw follows from the setting, and it would be drawn wrongly for those as well.
    """
    few = LISTED if config.get("replacement") else None
    source = [_source_row(population.source[number]) for number in _listed(len(population.source), few)]
    target = [
        _row(client, answers.of(client), client.ids, 0)
        for client in map(population.target.__getitem__, _listed(len(population.target), few))
    ]
    sizes = {"source_clients": len(population.source), "target_clients": len(population.target)}
    return Manifest(config, {**data, **sizes}, source, target, made_with())


def _listed(clients: int, few: int | None) -> Iterable[int]:
    return range(0, clients, 1 if few is None else math.ceil(clients / few))


def _source_row(client: SourceClient) -> Row:
    labels = np.concatenate([client.train_labels, client.validation_labels])
    ids = np.concatenate([client.train_ids, client.validation_ids])
    return _row(client, labels, ids, len(client.validation_ids))


def _row(client: Client, labels: Labels | None, ids: Ids, held_back: int) -> Row:
    classes = len(client.info.classes)
    counts = [] if labels is None else np.bincount(labels, minlength=classes).tolist()
    corruption, severity = client.corruption or (None, 0)
    return (client.id, client.domain, corruption, severity, counts, held_back, sha256([ids]))


def made_with() -> dict[str, str]:
    """The versions that decide about random numbers."""
    return {"ttpfl": __version__, "numpy": np.__version__, "python": platform.python_version()}


def sha256(arrays: Iterable[NDArray[Any]]) -> str:
    """A hash of the arrays' kinds, shapes and values, the same on every machine.

    >>> sha256([np.arange(3)])[:16]
    '129d7c8430eea69d'
    """
    digest = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{little.dtype.str}{little.shape}".encode())
        digest.update(little.data)
    return digest.hexdigest()


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they come back from a JSON file.

    >>> as_json({"image_size": (16, 16), "seed": np.int64(1), "folder": Path("a")})
    {'image_size': [16, 16], 'seed': 1, 'folder': 'a'}
    """

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else os.fspath(value)

    return dict(json.loads(json.dumps(dict(values), default=plain)))


def compare(expected: Manifest, found: Manifest, path: object) -> None:
    """Raise a DataError that says what is different from the manifest at `path`."""
    for name in ("data", "config"):
        before, now = getattr(expected, name), getattr(found, name)
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                raise _different(
                    path, expected, f"{key} of the {name} was {before.get(key)!r}, it is {now.get(key)!r}"
                )
    for part in ("source", "target"):
        before, now = getattr(expected, part), getattr(found, part)
        if len(before) != len(now):
            raise _different(path, expected, f"there were {len(before)} {part} clients, there are {len(now)}")
        for old, new in zip(before, now, strict=True):
            for column, was, is_ in zip(COLUMNS, old, new, strict=True):
                if was != is_:
                    raise _different(path, expected, f"{column} of client {old[0]} was {was}, it is {is_}")


def _different(path: object, expected: Manifest, what: str) -> DataError:
    before = ", ".join(f"{name} {version}" for name, version in expected.made_with.items())
    now = ", ".join(f"{name} {version}" for name, version in made_with().items())
    return DataError(
        f"this is not the population of {path}: {what} (made with {before}; this is {now}). Restore the "
        "data and versions it was made with, or delete the file if the change is meant"
    )
