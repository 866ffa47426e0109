"""The manifest describes a population in a JSON file: written once, compared with in later runs."""

import hashlib
import json
import math
import os
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

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
"""A client: `classes` counts its images of each class, `validation` the held-out ones; `sha256` is a hash of
all image ids in the client's order."""
C = TypeVar("C", bound=Client)


@dataclass(frozen=True)
class Manifest:
    """What a population consists of; equal for equal populations."""

    config: dict[str, Any]
    data: dict[str, Any]
    """Name and options of the data set, numbers of clients, and a hash of all images."""
    source: list[Row]
    target: list[Row]
    made_with: dict[str, str]

    @property
    def setting(self) -> dict[str, Any]:
        """Old name of `config`."""
        warnings.warn("setting is now config", DeprecationWarning, stacklevel=2)
        return self.config

    @property
    def digest(self) -> str:
        """A hash of everything that determines the clients' images."""
        decisive = [self.config, self.data, self.source, self.target]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file atomically, one client per line."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as file:
            file.write(self._text().encode())

    def _text(self) -> str:
        rows = {"source": self.source, "target": self.target}
        head = {
            "format": FORMAT,
            "made_with": self.made_with,
            "setting": self.config,
            "data": self.data,
            "columns": COLUMNS,
        }
        head[CHECKSUM] = sealed({**head, **rows})[CHECKSUM]
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        for name, clients in rows.items():
            lines.append(f'"{name}": [\n' + ",\n".join(map(json.dumps, clients)) + "\n]")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: str | PathLike[str]) -> Manifest:
    """Read a manifest from a file."""
    try:
        content = read_json(path)
        if content["format"] not in (UNSEALED, FORMAT):
            raise DataError(
                f"{path} has format {content['format']!r}, but this version reads {FORMAT}: "
                "make the population again"
            )
        if content["format"] == UNSEALED and CHECKSUM not in content:
            warn_of_old_format(str(path))
        elif not is_sound(content):
            raise DataError(f"{path} is damaged (its checksum does not match): make the population again")
        source, target = ([_read_row(row) for row in content[part]] for part in ("source", "target"))
        config, data, versions = (dict(content[part]) for part in ("setting", "data", "made_with"))
        data |= {"name": data["name"], "options": dict(data["options"])}
        return Manifest(config, data, source, target, versions)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TtpflError):
            raise
        raise DataError(f"{path} is not a valid manifest ({error!r}): make the population again") from error


def _read_row(values: list[Any]) -> Row:
    if len(values) != len(COLUMNS):
        raise ValueError(f"a client has {len(values)} values instead of {len(COLUMNS)}")
    return cast(Row, tuple(values))


def describe(
    population: Population, target_labels: TargetLabels, config: dict[str, Any], data: dict[str, Any]
) -> Manifest:
    """The manifest of a population, computed from its clients.

    If clients draw their images on access and there are more than `LISTED`, only about that many are listed,
    evenly spaced: an error in the draw would show in those too.
    """
    sampled = bool(config.get("replacement"))
    source = [_source_row(client) for client in _listed(population.source, sampled)]
    targets = _listed(population.target, sampled)
    target = [_row(client, target_labels.of(client), client.ids, 0) for client in targets]
    sizes = {"source_clients": len(population.source), "target_clients": len(population.target)}
    return Manifest(config, {**data, **sizes}, source, target, made_with())


def _listed(clients: Sequence[C], sampled: bool) -> Sequence[C]:
    return clients[:: math.ceil(len(clients) / LISTED)] if sampled else clients


def _source_row(client: SourceClient) -> Row:
    labels = np.concatenate([client.train_labels, client.validation_labels])
    ids = np.concatenate([client.train_ids, client.validation_ids])
    return _row(client, labels, ids, len(client.validation_ids))


def _row(client: Client, labels: Labels | None, ids: Ids, held_out: int) -> Row:
    classes = len(client.info.classes)
    counts = [] if labels is None else np.bincount(labels, minlength=classes).tolist()
    corruption, severity = client.corruption or (None, 0)
    return (client.id, client.domain, corruption, severity, counts, held_out, sha256([ids]))


def made_with() -> dict[str, str]:
    """The versions that random numbers depend on."""
    return {"ttpfl": __version__, "numpy": np.__version__, "python": platform.python_version()}


def sha256(arrays: Iterable[NDArray[Any]]) -> str:
    """A hash of the arrays' types, shapes and values, the same on every machine.

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


def compare(expected: Manifest, made: Manifest, path: object) -> None:
    """Raise a DataError that names the first difference from the manifest at `path`."""
    for difference in _differences(expected, made):
        before, now = (
            ", ".join(f"{name} {version}" for name, version in versions.items())
            for versions in (expected.made_with, made_with())
        )
        raise DataError(
            f"this is not the population of {path}: {difference} (made with {before}; this is {now}). "
            "Restore the data and versions it was made with, or delete the file if the change is intended"
        )


def _differences(expected: Manifest, made: Manifest) -> Iterator[str]:
    for name in ("data", "config"):
        before, now = getattr(expected, name), getattr(made, name)
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                yield f"{key} of the {name} was {before.get(key)!r}, it is {now.get(key)!r}"
    for part in ("source", "target"):
        before, now = getattr(expected, part), getattr(made, part)
        if len(before) != len(now):
            yield f"there were {len(before)} {part} clients, there are {len(now)}"
        for old, new in zip(before, now, strict=True):
            for column, was, is_ in zip(COLUMNS, old, new, strict=True):
                if was != is_:
                    yield f"{column} of client {old[0]} was {was}, it is {is_}"
