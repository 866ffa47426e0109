"""Human activity recognition: acceleration and rotation of a phone at the waist of 30 persons."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.array_files import read_recording
from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import NaturalClients, by_client
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.limits import ARRAYS
from ttpfl.util.reading import read_bytes
from ttpfl.util.settings_kit import one_of

FOLDER, FILE = "UCI HAR Dataset", "har.npz"
WINDOW = 128
SIGNALS = {"total": ("total_acc",), "all": ("total_acc", "body_acc", "body_gyro")}

HAR = DatasetInfo(
    name="har",
    title="UCI human activity recognition: motion of 30 persons",
    classes=("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"),
    domains=(),
    image_size=(0, 0),
    channels="total acceleration along three axes; with signals=all also body acceleration and rotation",
    mean=(),
    std=(),
    licence="no commercial use, cite the authors (README of the files); CC BY 4.0 (donation policy of UCI)",
    homepage="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
    instructions=f"the unpacked folder {FOLDER!r}, or {FILE} with x, y, client, scale and classes,",
    places=(f"{FOLDER}/train/subject_train.txt", FILE),
    samples=10_299,
    natural=True,
    shape=(3, WINDOW),
)


@dataset(HAR)
def har(directory: Path, signals: Annotated[str, one_of(*SIGNALS)] = "total") -> NaturalClients:
    """The windows of each person: `total` acceleration, or all nine channels of the official files."""
    if (directory / FOLDER).is_dir():
        x, y, client = _official(directory / FOLDER, SIGNALS[signals])
        return NaturalClients(by_client(x, y, client), replace(HAR, shape=x.shape[1:]))
    if not (directory / FILE).is_file():
        raise DataMissingError(f"there is neither {FOLDER} nor {FILE} in {directory}")
    if signals != "total":
        raise DataError(f"signals is {signals!r}, which {FILE} does not have: get the official files")
    recording = read_recording(directory / FILE)
    if recording.client is None or recording.classes is None or {*recording.classes} != {*HAR.classes}:
        raise DataError(f"{directory / FILE} lacks client or classes, or has other classes: get it again")
    numbers = np.array([HAR.classes.index(name) for name in recording.classes])
    info = replace(HAR, shape=recording.x.shape[1:], scale=recording.scale)
    return NaturalClients(by_client(recording.x, numbers[recording.y], recording.client), info)


def _official(
    folder: Path, signals: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Samples, labels and persons of the training and test part, which are different persons."""
    parts = []
    for part in ("train", "test"):
        y, client = (_numbers(folder / part / f"{name}_{part}.txt")[:, 0] for name in ("y", "subject"))
        channels = [
            _numbers(folder / part / "Inertial Signals" / f"{signal}_{axis}_{part}.txt")
            for signal in signals
            for axis in "xyz"
        ]
        lengths = {len(y), len(client), *map(len, channels)}
        if len(lengths) > 1 or channels[0].shape[1:] != (WINDOW,):
            raise DataError(f"the files in {folder / part} do not fit together: get them again")
        parts.append((np.stack(channels, 1), y.astype(np.int64) - 1, client.astype(np.int64)))
    xs, ys, clients = zip(*parts, strict=True)
    return np.concatenate(xs), np.concatenate(ys), np.concatenate(clients)


def _numbers(path: Path) -> NDArray[np.float32]:
    """A text file with a row of numbers per line."""
    if not path.is_file():
        raise DataMissingError(f"har is incomplete: there is no {path}")
    lines = read_bytes(path, ARRAYS).decode("ascii", "replace").splitlines()
    try:
        return np.loadtxt(lines, np.float32, ndmin=2)
    except ValueError as error:
        raise DataError(f"{path} is not a table of numbers ({error}): get it again") from error
