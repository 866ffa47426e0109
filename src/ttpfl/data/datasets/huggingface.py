"""Data sets of the Hugging Face `datasets` package, or anything else with named columns."""

from collections.abc import Collection, Iterable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays, numbered_classes, own_info
from ttpfl.data.extras import extra
from ttpfl.data.pictures import Size, as_rgb, as_size, resized
from ttpfl.errors import DataError
from ttpfl.util.limits import PICTURE
from ttpfl.util.reading import read_bytes
from ttpfl.util.settings_kit import check_known

HUGGINGFACE = own_info(
    name="huggingface",
    title="A Hugging Face data set with a column of clients",
    channels="converted to RGB",
    licence="see its card",
    instructions="",
)


def from_huggingface(
    dataset: Any,
    image_column: str = "image",
    label_column: str | None = "label",
    client_column: str = "client",
    *,
    target_clients: Collection[Any] = (),
    image_size: int | Size | None = None,
    classes: Sequence[str] | None = None,
) -> ClientArrays:
    """Clients from the rows of a `datasets.Dataset`, or of anything with columns `dataset[name]`.

    Clients in `target_clients` are target clients, all others source clients. Images are pillow images
    (`datasets.Image`), encoded bytes or uint8 arrays. Labels are class numbers or names; -1 and None mean
    unknown. `classes` names all classes in order, if the data set does not and some do not occur.

    >>> rows = {"image": np.zeros((4, 8, 8), np.uint8), "label": ["cat", "dog", "cat", None],
    ...         "client": ["north", "north", "west", "south"]}
    >>> from_huggingface(rows, target_clients=["south"])
    <huggingface: 2 source clients, 1 target clients, images of 8x8, 2 classes>
    """
    owners = [str(owner) for owner in _column(dataset, client_column)]
    targets = {str(name) for name in target_clients}
    if unknown := sorted(targets - set(owners)):
        raise DataError(f"target_clients: no row has the client {unknown[0]!r} in column {client_column!r}")
    labels = [None] * len(owners) if label_column is None else list(_column(dataset, label_column))
    names = _class_names(dataset, label_column) if classes is None else tuple(classes)
    names, y = _labels(labels, names)
    x = _images(_column(dataset, image_column), image_column, as_size(image_size))
    rows: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    clients = {name: _client(name, [x[i] for i in indices], y[indices]) for name, indices in rows.items()}
    source = {name: client for name, client in clients.items() if name not in targets}
    target = {name: client for name, client in clients.items() if name in targets}
    return client_arrays(source, target, HUGGINGFACE, names)


def _column(dataset: Any, name: str) -> Iterable[Any]:
    names = list(getattr(dataset, "column_names", None) or getattr(dataset, "keys", list)())
    if names:
        check_known("column", name, map(str, names), DataError)
    column: Iterable[Any] = dataset[name]
    return column


def _class_names(dataset: Any, label_column: str | None) -> tuple[str, ...] | None:
    """The names in the column's `ClassLabel` feature, if it has one."""
    feature = (getattr(dataset, "features", None) or {}).get(label_column)
    names = getattr(feature, "names", None)
    return tuple(names) if names else None


def _labels(labels: list[Any], names: tuple[str, ...] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Class names, and the class index of every row, or -1 if it is unknown."""
    known_labels = {label for label in labels if label is not None and label != -1}
    if names is None and all(isinstance(label, str) for label in known_labels):
        names = tuple(sorted(known_labels))
    index = {name: number for number, name in enumerate(names or ())}
    y = np.array([_number(label, index) for label in labels], np.int64)
    return names or numbered_classes([y], "list all classes with classes="), y


def _number(label: Any, index: dict[str, int]) -> int:
    if label is None:
        return -1
    if isinstance(label, str) and label in index:
        return index[label]
    if isinstance(label, (int, np.integer)) and -1 <= label < 2**63:
        return int(label)
    raise DataError(f"the label {label!r} is neither the name nor the number of a class")


def _images(column: Iterable[Any], name: str, size: Size | None) -> list[NDArray[np.uint8]]:
    images = []
    for row, value in enumerate(column):
        try:
            images.append(_image(value, size))
        except Exception as error:  # the decoders can fail in any way
            raise DataError(f"row {row} of column {name!r} is not an image: {error}") from error
    return images


def _image(value: Any, size: Size | None) -> NDArray[np.uint8]:
    if isinstance(value, dict):  # Image(decode=False)
        value = extra("PIL.Image").open(BytesIO(value.get("bytes") or read_bytes(value["path"], PICTURE)))
    if hasattr(value, "convert"):  # a pillow image
        return as_rgb(value, size)
    pixels: NDArray[Any] = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype.kind in "iu" and pixels.size and pixels.min() >= 0 and pixels.max() <= 255:
        pixels = pixels.astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        raise DataError(f"{pixels.dtype} {pixels.shape} is not uint8 (height, width) or (height, width, 3)")
    rgb: NDArray[np.uint8] = resized(pixels[None], size or (pixels.shape[0], pixels.shape[1]))[0]
    return rgb


def _client(name: str, images: list[NDArray[np.uint8]], y: NDArray[np.int64]) -> ClientData:
    if len({image.shape for image in images}) > 1:
        raise DataError(f"client {name!r} has images of several sizes: pass image_size= to resize them")
    unknown = y < 0
    if unknown.any() and not unknown.all():
        raise DataError(
            f"client {name!r} has {unknown.sum()} images without and {(~unknown).sum()} with a label: "
            "label all images, or none of a target client's"
        )
    return ClientData(np.stack(images), None if unknown.all() else y)
