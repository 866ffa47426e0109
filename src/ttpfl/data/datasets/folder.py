"""The user's own images: one folder per client, with one folder per class."""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays, own_info
from ttpfl.data.option_types import ImageSize, Names, Truth
from ttpfl.data.pictures import Size, Unreadable, as_size, decode, pictures_in
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError

log = logging.getLogger("ttpfl")

FOLDER = own_info(
    name="folder",
    title="Your own images, in one folder per client and class",
    channels="converted to RGB",
    licence="yours",
    instructions="your images as source/<client>/<class>/*.png and target/<client>/*.png "
    "(or target/<client>/<class>/*.png, where labels are known for evaluation)",
    places=("source/*/*/*",),
)


class Picture(NamedTuple):
    """An image file, and its part, client and class."""

    part: str
    client: str
    label: str | None
    path: Path


Decoded = tuple[Picture, NDArray[np.uint8]]


@dataset(FOLDER)
def folder(
    directory: Path,
    image_size: ImageSize = None,
    skip_unreadable: Truth = False,
    classes: Names = None,
) -> ClientArrays:
    """All clients below `directory`; images are resized only if `image_size` is given.

    `classes` names all classes in the order of their labels, for a part of a federation that lacks some.
    """
    pictures = [*_listing(directory, "source"), *_listing(directory, "target")]
    if not any(picture.part == "source" for picture in pictures):
        raise DataMissingError(f"there are no images in {directory / 'source'}")
    names = _classes(pictures, classes)
    decoded = _decoded(pictures, as_size(image_size), skip_unreadable)
    _check_sizes(decoded)
    clients: dict[str, dict[str, ClientData]] = {"source": {}, "target": {}}
    for (part, client), rows in groupby(decoded, lambda row: row[0][:2]):  # listed client by client
        clients[part][client] = _client(list(rows), names)
    return client_arrays(**clients, info=FOLDER, classes=names)


def _listing(directory: Path, part: str) -> list[Picture]:
    pictures = []
    for client in _folders(directory / part):
        unlabelled = [Picture(part, client.name, None, path) for path in pictures_in(client)]
        labelled = [
            Picture(part, client.name, label.name, path)
            for label in _folders(client)
            for path in pictures_in(label)
        ]
        if unlabelled and (part == "source" or labelled):
            remedy = "move it into one" if part == "source" else "move it into one, or move all out of them"
            raise DataError(f"{unlabelled[0].path} is not in the folder of a class: {remedy}")
        if not unlabelled and not labelled:
            raise DataError(f"{client} has no images: add some, or remove it")
        pictures += unlabelled + labelled
    return pictures


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _classes(pictures: Iterable[Picture], names: Sequence[str] | None) -> tuple[str, ...]:
    """`names`, or by default the classes of the source clients; numbers in numerical order."""
    if names is None:
        labels = {p.label for p in pictures if p.part == "source" and p.label is not None}
        classes = tuple(sorted(labels, key=int if all(label.isdecimal() for label in labels) else None))
    else:
        classes = tuple(names)
    for picture in pictures:
        if picture.label is not None and picture.label not in classes:
            problem = "which no source client has" if names is None else "which is not in classes"
            raise DataError(
                f"{picture.path} has the class {picture.label!r}, {problem} ({', '.join(sorted(classes))}): "
                "correct the name, or remove the folder"
            )
    return classes


def _decoded(pictures: list[Picture], size: Size | None, skip_unreadable: bool) -> list[Decoded]:
    decoded, failures = [], []
    for picture, pixels in zip(pictures, decode([p.path for p in pictures], size), strict=True):
        if isinstance(pixels, Unreadable):
            failures.append(str(pixels))
        else:
            decoded.append((picture, pixels))
    if failures and not skip_unreadable:
        raise DataError(
            f"{len(failures)} images cannot be read; fix or remove them, or pass skip_unreadable=True: "
            f"{'; '.join(failures)}"
        )
    if failures:
        log.warning("skipped %d unreadable images: %s", len(failures), "; ".join(failures))
    return decoded


def _check_sizes(decoded: list[Decoded]) -> None:
    examples = {pixels.shape[:2]: picture.path for picture, pixels in decoded}
    if len(examples) > 1:
        shown = ", ".join(f"{h}x{w} ({path})" for (h, w), path in list(examples.items())[:3])
        raise DataError(
            f"images have {len(examples)} sizes, such as {shown}: pass image_size= to resize them"
        )


def _client(rows: list[Decoded], classes: tuple[str, ...]) -> ClientData:
    labels = [classes.index(picture.label) for picture, _ in rows if picture.label is not None]
    x = np.stack([pixels for _, pixels in rows])
    return ClientData(x, np.array(labels, np.int64) if labels else None)
