"""The user's own samples of any shape: a file for all clients, or one per client."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ttpfl.data.array_files import Recording, read_recording
from ttpfl.data.client_arrays import ClientArrays, ClientData, completed, numbered_classes, own_info
from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import UNKNOWN, NaturalClients, by_client, known_labels
from ttpfl.data.option_types import FileName, ImageSize, Missing, Names, Numbers, Scale, Truth
from ttpfl.data.pictures import Size, as_size, resized
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError

FILE = "data.npz"
LISTING = "list all classes with the option classes"

ARRAYS = own_info(
    name="arrays",
    title="Your own arrays of any shape, in one file or in one per client",
    channels="yours; images become RGB",
    licence="yours",
    instructions="your samples as data.npz, or as x.npy, y.npy and client.npy (memory-mapped), with samples "
    "x ((N, features) or (N, channels, ...); images (N, H, W) or (N, H, W, 3) in uint8), labels y (integers "
    "from 0; -1 if unknown) and the client of each sample; or as source/<client>.npz and "
    "target/<client>.npz, each with x and y (optional for targets), or folders <client> with x.npy and y.npy",
    places=("source/*.npz", "source/*/x.npy", "x.npy", FILE),
    natural=True,
)


@dataset(ARRAYS)
def arrays(
    directory: Path,
    image_size: ImageSize = None,
    classes: Names = None,
    file: FileName = None,
    images: Truth = True,
    scale: Scale = None,
    mean: Numbers = None,
    std: Numbers = None,
    missing: Missing = "error",
) -> ClientArrays | NaturalClients:
    """All clients in `directory`. `classes` names the labels.

    Without `classes`, they are named by number, and every label from 0 to the highest must occur. `file`
    names the npz file with all clients. With `images=False`, arrays of 8 bits are taken as they are. `mean`
    and `std` replace those of the source clients' training data.
    """
    size, whole = as_size(image_size), _whole(directory, file)
    files = [{"": whole}] if whole else [_files(directory / part) for part in ("source", "target")]
    if not files[0]:
        raise DataMissingError(f"there are no npz files or folders with x.npy in {directory / 'source'}")
    parts = [
        {name: _pictures(read_recording(path), size, images) for name, path in part.items()} for part in files
    ]
    first, *others = (recording for part in parts for recording in part.values())
    if unequal := [other.scale for other in others if other.scale != first.scale]:
        raise DataError(f"scale is {first.scale} and {unequal[0]} in {directory}: all clients need the same")
    clients = [_by_client(first, whole)] if whole else [_one_each(part) for part in parts]
    names = classes or first.classes or numbered_classes(known_labels(*clients), LISTING)
    info = replace(ARRAYS, missing=missing, shape=() if _is_picture(first, images) else first.x.shape[1:])
    info = completed(info, clients[0].values(), tuple(names))
    if info.shape:
        info = normalised(replace(info, scale=first.scale if scale is None else scale), mean, std)
    if whole:
        return NaturalClients(clients[0], info)
    source, target = clients
    return ClientArrays(source, target, info)


def normalised(
    info: DatasetInfo, mean: Sequence[float] | float | None, std: Sequence[float] | float | None
) -> DatasetInfo:
    """With this mean and standard deviation: a number for each channel, or one for all.

    Without them, they are computed from the source clients' training data.
    """
    if mean is None and std is None:
        return info
    if mean is None or std is None:
        raise DataError(f"mean is {mean} and std is {std}: give both, or none")
    channels = info.shape[0]
    means, stds = (
        tuple(map(float, given if isinstance(given, Sequence) else [given] * channels))
        for given in (mean, std)
    )
    if not len(means) == len(stds) == channels or min(stds) <= 0:
        raise DataError(
            f"mean is {mean} and std is {std}: give one number, or one for each of the {channels} channels; "
            "std must be positive"
        )
    return replace(info, mean=means, std=stds)


def _whole(directory: Path, file: str | None) -> Path | None:
    """The file or folder with all clients, if there is one."""
    if file is not None:
        if not (directory / file).is_file():
            raise DataMissingError(f"there is no {file} in {directory}")
        return directory / file
    if (directory / "x.npy").is_file():
        return directory
    return directory / FILE if (directory / FILE).is_file() else None


def _files(folder: Path) -> dict[str, Path]:
    """The file or folder of each client, by its name."""
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/x.npy"))}
    return {**{path.stem: path for path in sorted(folder.glob("*.npz"))}, **folders}


def _is_picture(recording: Recording, images: bool) -> bool:
    x = recording.x
    return images and x.dtype == np.uint8 and (x.ndim == 3 or (x.ndim == 4 and x.shape[3] in (1, 3)))


def _pictures(recording: Recording, size: Size | None, images: bool) -> Recording:
    """The same, with images in RGB and resized."""
    if not _is_picture(recording, images):
        if size is not None:
            raise DataError(f"image_size is {size}, but the samples are no images: leave it out")
        return recording
    x = recording.x
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    return recording._replace(x=resized(x, size or (x.shape[1], x.shape[2])))


def _by_client(recording: Recording, path: Path) -> dict[str, ClientData]:
    if recording.client is None:
        raise DataError(f"{path} has no array 'client': add the number or name of the client of each sample")
    return by_client(recording.x, recording.y, recording.client)


def _one_each(recordings: dict[str, Recording]) -> dict[str, ClientData]:
    """A client for each file, whose labels are unknown only if there are none."""
    return {
        name: ClientData(x, None if len(y) and (y == UNKNOWN).all() else y)
        for name, (x, y, *_) in recordings.items()
    }
