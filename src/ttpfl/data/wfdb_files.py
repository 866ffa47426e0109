"""Records in WFDB format: signals in format 212 and beat annotations, as in the MIT-BIH data bases.

The formats are those of the manual pages signal(5), annot(5) and header(5) of the WFDB software.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.errors import DataError
from ttpfl.util.limits import ARRAYS
from ttpfl.util.reading import read_bytes

# Types of annotations in a file that are beats, by their usual symbols.
SYMBOLS = dict(enumerate("NLRaVFJASEj/Q", start=1)) | {34: "e", 35: "n", 38: "f", 41: "r"}
SKIP, NUMBER, SUBTYPE, CHANNEL, TEXT = 59, 60, 61, 62, 63  # types that change how the file is read


class Record(NamedTuple):
    """Signals in physical units, and the beats among the annotations."""

    frequency: float
    leads: tuple[str, ...]
    signals: NDArray[np.float64]
    """(leads, samples)."""
    places: NDArray[np.int64]
    """Samples at which the beats are."""
    symbols: list[str]


def read_record(header: Path) -> Record:
    """Read a record by its header file; its signals must be in one file in format 212."""
    try:
        lines = [line.split() for line in read_bytes(header).decode("latin-1").splitlines()]
        (_, leads, frequency, *_), *specs = [line for line in lines if line and not line[0].startswith("#")]
        specs = specs[: int(leads)]
        file, form = specs[0][:2]
        if form != "212" or {(spec[0], spec[1]) for spec in specs} != {(file, form)} or "/" in file:
            raise ValueError(
                f"signals are not all in one file in format 212, but {[*map(tuple, specs)]!r:.80}"
            )
        content = read_bytes(header.with_name(file), ARRAYS)
        stored = unpacked(content).reshape(-1, len(specs)).T.astype(np.float64)
        gains, zeros = np.array([calibration(spec[2], spec[4]) for spec in specs]).T[..., None]
        places, symbols = beats(read_bytes(header.with_suffix(".atr"), ARRAYS))
        names = tuple(spec[8] if len(spec) > 8 else "" for spec in specs)
        return Record(float(frequency.split("/")[0]), names, (stored - zeros) / gains, places, symbols)
    except (ValueError, IndexError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{header} is not a record that can be read ({error}): get it again") from error


def calibration(gain: str, zero: str) -> tuple[float, float]:
    """Units per mV, and the value at 0 mV, which is that of the converter's zero unless it is in brackets.

    >>> calibration("200", "1024"), calibration("0/mV", "0"), calibration("100.5(512)/mV", "0")
    ((200.0, 1024.0), (200.0, 0.0), (100.5, 512.0))
    """
    number, _, baseline = gain.partition("/")[0].partition("(")
    return float(number) or 200.0, float(baseline.rstrip(")") or zero)


def unpacked(content: bytes) -> NDArray[np.int16]:
    """Format 212: two numbers of 12 bits with a sign in three bytes.

    >>> unpacked(bytes([0xFF, 0x4F, 0x01])).tolist()
    [-1, 1025]
    """
    if len(content) % 3:
        raise ValueError(f"a file in format 212 has {len(content)} bytes, which is no multiple of 3")
    first, middle, last = np.frombuffer(content, np.uint8).reshape(-1, 3).T.astype(np.int16)
    pairs = np.stack([first | (middle & 0x0F) << 8, last | (middle & 0xF0) << 4], 1)
    return np.asarray(pairs - ((pairs & 0x800) << 1)).ravel()


def beats(content: bytes) -> tuple[NDArray[np.int64], list[str]]:
    """Places and symbols of the beats in an annotation file; other annotations are left out.

    >>> beats(bytes([10, 4, 5, 20, 0, 0]))  # a normal beat after 10 samples, a ventricular one 5 later
    (array([10, 15]), ['N', 'V'])
    """
    words = np.frombuffer(content[: len(content) // 2 * 2], "<u2").tolist()
    time, at, places, symbols = 0, 0, list[int](), list[str]()
    while at < len(words) and words[at]:
        kind, number = words[at] >> 10, words[at] & 0x3FF
        at += 1
        if kind == SKIP:  # a long interval, high word first
            high, low = words[at : at + 2]
            time += ((high << 16 | low) ^ 0x80000000) - 0x80000000
            at += 2
        elif kind == TEXT:
            at += (number + 1) // 2
        elif kind not in (NUMBER, SUBTYPE, CHANNEL):
            time += number
            if kind in SYMBOLS:
                places.append(time)
                symbols.append(SYMBOLS[kind])
    return np.array(places, np.int64), symbols
