"""Spoken digits: recordings of six speakers as spectrograms."""

import io
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import NaturalClients, by_client
from ttpfl.data.registry import dataset
from ttpfl.data.storage import read_npz
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.limits import ARRAYS
from ttpfl.util.reading import read_bytes

FOLDER, FILE = "free-spoken-digit-dataset/recordings", "fsdd.npz"
NAME = re.compile(r"([0-9])_([A-Za-z]+)_([0-9]+)\.wav")
RATE = 8000
SIDE = 64  # of a spectrogram: frequencies and windows in time
WINDOW, STEP = 126, 125  # samples; 64 windows cover a second
FLOOR = 1e-8  # of power, below the noise of 16 bits

SPOKEN_DIGITS = DatasetInfo(
    name="spoken-digits",
    title="Free spoken digit data set: six speakers",
    classes=tuple("0123456789"),
    domains=(),
    image_size=(0, 0),
    channels="logarithm of the power at 64 frequencies (rows, upwards) and times, in the first second",
    mean=(),
    std=(),
    licence="CC BY-SA 4.0 (README of the official repository)",
    homepage="https://github.com/Jakobovski/free-spoken-digit-dataset",
    instructions=f"{FOLDER}/*.wav, or {FILE} with samples, length, y, client and speakers,",
    places=(f"{FOLDER}/*.wav", FILE),
    samples=3000,
    defaults={"folds": 6},
    natural=True,
    shape=(1, SIDE, SIDE),
)

Sound = NDArray[np.int16]


@dataset(SPOKEN_DIGITS)
def spoken_digits(directory: Path) -> NaturalClients:
    """The recordings of each speaker, by digit and number."""
    files = sorted((directory / FOLDER).glob("*.wav"))
    if files:
        sounds, y, speakers = _recordings(files)
    elif (directory / FILE).is_file():
        sounds, y, speakers = _packed(directory / FILE)
    else:
        raise DataMissingError(f"there are neither recordings in {directory / FOLDER} nor a {FILE}")
    x = np.stack([spectrogram(sound) for sound in sounds])
    return NaturalClients(by_client(x, y, np.array(speakers)), SPOKEN_DIGITS)


def spectrogram(sound: Sound) -> NDArray[np.float32]:
    """The log-spectrogram (1, frequencies, times) of the first second; silence follows a shorter sound.

    Frequencies go upwards, from the last row to the first, as spectrograms are usually drawn.

    >>> tone = (8000 * np.sin(2 * np.pi * 1000 * np.arange(8000) / RATE)).astype(np.int16)
    >>> row = int(spectrogram(tone)[0].mean(1).argmax())
    >>> (SIDE - 1 - row) * RATE / WINDOW  # the frequency, in steps of 63 Hz
    1015.8...
    """
    length = (SIDE - 1) * STEP + WINDOW
    padded = np.zeros(length)
    padded[: min(length, len(sound))] = sound[:length] / 2**15
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::STEP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    return np.asarray(np.log(power.T[::-1] + FLOOR), np.float32)[None]


def _recordings(files: list[Path]) -> tuple[list[Sound], NDArray[np.int64], list[str]]:
    sounds, digits, speakers = list[Sound](), list[int](), list[str]()
    for path in files:
        if (match := NAME.fullmatch(path.name)) is None:
            raise DataError(f"{path} is not named <digit>_<speaker>_<number>.wav: rename or remove it")
        sounds.append(_sound(path))
        digits.append(int(match[1]))
        speakers.append(match[2])
    return sounds, np.array(digits, np.int64), speakers


def _sound(path: Path) -> Sound:
    try:
        with wave.open(io.BytesIO(read_bytes(path, ARRAYS))) as file:
            if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
                raise DataError(f"{path} is not mono with 16 bits at {RATE} Hz: convert it")
            return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
    except (wave.Error, EOFError) as error:
        raise DataError(f"{path} is not a valid wav file ({error}): get it again") from error


def _packed(path: Path) -> tuple[list[Sound], NDArray[np.int64], list[str]]:
    """Recordings one after the other."""
    arrays: dict[str, NDArray[Any]] = read_npz(path)
    try:
        samples, length = arrays["samples"], arrays["length"].astype(np.int64)
        y, names = arrays["y"].astype(np.int64), [str(name) for name in arrays["speakers"]]
        speakers = [names[number] for number in arrays["client"].tolist()]
        fitting = len(y) == len(length) == len(speakers) and length.sum() == len(samples)
        if samples.dtype != np.int16 or not fitting:
            raise ValueError("its arrays do not fit together")
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise DataError(f"{path} is not a file of spoken digits ({error!r}): get it again") from error
    return np.split(samples, np.cumsum(length)[:-1]), y, speakers
