"""The user's own pictures: one folder per client, one folder per class in it."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays, own_facts
from ttpfl.data.option_types import ImageSize, Names, Truth
from ttpfl.data.pictures import Size, Unreadable, as_size, decode, pictures_in
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError

log = logging.getLogger("ttpfl")

FOLDER = own_facts(
    name="folder",
    title="Your own pictures, in one folder per client and class",
    channels="converted to RGB",
    licence="yours",
    instructions="your pictures as source/<client>/<class>/*.png and target/<client>/*.png "
    "(or target/<client>/<class>/*.png, where labels are known for evaluation)",
    places=("source/*/*/*",),
)


class Picture(NamedTuple):
    """Where a picture is, and what it belongs to."""

    part: str
    client: str
    label: str | None
    path: Path


@dataset(FOLDER)
def folder(
    directory: Path,
    image_size: ImageSize = None,
    skip_unreadable: Truth = False,
    classes: Names = None,
) -> ClientArrays:
    """All clients below `directory`; pictures are resized only if `image_size` is given.

    `classes` gives the names of all classes in the order of their labels: for a part of a federation, which
    may lack some.
    """
    pictures = [*_listing(directory, "source"), *_listing(directory, "target")]
    if not any(picture.part == "source" for picture in pictures):
        raise DataMissingError(f"there are no pictures in {directory / 'source'}")
    names = _classes(pictures, classes)
    kept, arrays = _decoded(pictures, as_size(image_size), skip_unreadable)
    _check_sizes(kept, arrays)
    clients: dict[str, dict[str, list[int]]] = {"source": {}, "target": {}}
    for index, picture in enumerate(kept):
        clients[picture.part].setdefault(picture.client, []).append(index)
    source, target = (
        {name: _client(rows, kept, arrays, names) for name, rows in clients[part].items()}
        for part in ("source", "target")
    )
    return client_arrays(source, target, FOLDER, names)


def _listing(directory: Path, part: str) -> list[Picture]:
    root, found = directory / part, []
    for home in _folders(root):
        loose = pictures_in(home)
        sorted_ones = [(label.name, path) for label in _folders(home) for path in pictures_in(label)]
        if loose and (part == "source" or sorted_ones):
            raise DataError(
                f"{loose[0]} is not in the folder of a class: move it into one"
                + (" (or none of this client's)" if part == "target" else "")
            )
        if not loose and not sorted_ones:
            raise DataError(f"{home} has no pictures: fill it or remove it")
        found += [Picture(part, home.name, None, path) for path in loose]
        found += [Picture(part, home.name, label, path) for label, path in sorted_ones]
    return found


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _classes(pictures: Iterable[Picture], given: Sequence[str] | None) -> tuple[str, ...]:
    """Those given, or the classes of the source clients; numbers in their own order, 10 after 9."""
    if given is not None:
        for picture in pictures:
            if picture.label is not None and picture.label not in given:
                raise DataError(
                    f"{picture.path} has the class {picture.label!r}, which is not one of "
                    f"{', '.join(given)}: correct the name, or remove the folder"
                )
        return tuple(given)
    known = {p.label for p in pictures if p.part == "source" and p.label is not None}
    for picture in pictures:
        if picture.label is not None and picture.label not in known:
            raise DataError(
                f"{picture.path} has the class {picture.label!r}, which no source client has "
                f"({', '.join(sorted(known))}): correct the name, or remove the folder"
            )
    if all(name.isdecimal() for name in known):
        return tuple(sorted(known, key=int))
    return tuple(sorted(known))


def _decoded(
    pictures: list[Picture], size: Size | None, skip_unreadable: bool
) -> tuple[list[Picture], list[NDArray[np.uint8]]]:
    kept, arrays, failures = [], [], []
    for picture, pixels in zip(pictures, decode([p.path for p in pictures], size), strict=True):
        if isinstance(pixels, Unreadable):
            failures.append(f"{pixels.path} ({pixels.reason})")
        else:
            kept.append(picture)
            arrays.append(pixels)
    if failures and not skip_unreadable:
        raise DataError(
            f"{len(failures)} pictures cannot be read; mend or remove them, or leave them out with "
            f"skip_unreadable=True: {'; '.join(failures)}"
        )
    if failures:
        log.warning("%d unreadable pictures left out: %s", len(failures), "; ".join(failures))
    return kept, arrays


def _check_sizes(pictures: list[Picture], arrays: list[NDArray[np.uint8]]) -> None:
    examples = {pixels.shape[:2]: p.path for p, pixels in zip(pictures, arrays, strict=True)}
    if len(examples) > 1:
        shown = ", ".join(f"{h}x{w} ({path})" for (h, w), path in list(examples.items())[:3])
        raise DataError(
            f"pictures have {len(examples)} sizes, such as {shown}: pass image_size= to resize them"
        )


def _client(
    rows: list[int], pictures: list[Picture], arrays: list[NDArray[np.uint8]], classes: tuple[str, ...]
) -> ClientData:
    x = np.stack([arrays[row] for row in rows])
    labels = [classes.index(name) for row in rows if (name := pictures[row].label) is not None]
    return ClientData(x, np.array(labels, np.int64) if labels else None)
