"""Heartbeats: the MIT-BIH arrhythmia data base, one sample per beat."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.clients import evenly
from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import NaturalClients, by_client
from ttpfl.data.option_types import Truth
from ttpfl.data.registry import dataset
from ttpfl.data.storage import read_npz
from ttpfl.data.wfdb_files import Record, read_record
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.settings_kit import integer

FOLDER, FILE = "mitdb", "ecg.npz"
WINDOW, PEAK = 128, 55  # samples of a beat at half the rate of recording, and the place of its R peak
FREQUENCY = 360
UNIT = 0.001  # mV
AAMI = {**dict.fromkeys("NLRej", 0), **dict.fromkeys("AaJS", 1), **dict.fromkeys("VE", 2), "F": 3}
"""Classes of beats by the AAMI; paced and unclassifiable beats are left out."""
PACED = ("102", "104", "107", "217")
DS1 = (
    "101", "106", "108", "109", "112", "114", "115", "116", "118", "119", "122",
    "124", "201", "203", "205", "207", "208", "209", "215", "220", "223", "230",
)  # fmt: skip
DS2 = (
    "100", "103", "105", "111", "113", "117", "121", "123", "200", "202", "210",
    "212", "213", "214", "219", "221", "222", "228", "231", "232", "233", "234",
)  # fmt: skip

ECG = DatasetInfo(
    name="ecg",
    title="MIT-BIH arrhythmia data base: heartbeats of 48 records",
    classes=("N", "S", "V", "F"),
    domains=(),
    image_size=(0, 0),
    channels="lead MLII, or the first; with rr=true also the intervals before and after the beat",
    mean=(),
    std=(),
    licence="ODC-By 1.0 or ODC PDDL 1.0: secondary sources differ (PhysioNet's statement was not read)",
    homepage="https://physionet.org/content/mitdb/1.0.0/",
    instructions=f"{FOLDER}/100.hea, 100.dat, 100.atr and so on, or {FILE} with x, y, client, rr and scale,",
    places=(f"{FOLDER}/*.atr", FILE),
    samples=101_363,
    natural=True,
    shape=(1, WINDOW),
    scale=UNIT,
)


class Beats(NamedTuple):
    """Beats in units of `UNIT`, their classes, and the seconds to the beats before and after."""

    x: NDArray[np.int16]
    y: NDArray[np.int64]
    rr: NDArray[np.float32]
    client: NDArray[np.str_]


@dataset(ECG)
def ecg(
    directory: Path,
    rr: Truth = False,
    paced: Truth = True,
    beats: Annotated[int, integer(2)] | None = None,
) -> NaturalClients:
    """The beats of each record in time. `held_out=DS2` is the usual split of patients, with `paced=False`.

    With `rr`, the intervals to the neighbours are two more channels, constant in time, for the network
    `beat_cnn`. Without `paced`, the four records with paced beats are left out. `beats` takes only that many
    of each record, evenly spaced in time.
    """
    if headers := sorted((directory / FOLDER).glob("*.hea")):
        parts = [_beats(path.stem, read_record(path)) for path in headers]
        found = Beats._make(map(np.concatenate, zip(*parts, strict=True)))
    elif (directory / FILE).is_file():
        found = _packed(directory / FILE)
    else:
        raise DataMissingError(f"there are neither records in {directory / FOLDER} nor a {FILE}")
    if not paced:
        found = _chosen(found, ~np.isin(found.client, PACED))
    if beats is not None:
        found = _chosen(found, _thinned(found.client, beats))
    x: NDArray[np.int16 | np.float32] = found.x
    if rr:  # in the unit of the signal, so that one scale applies to all channels
        constant = np.repeat((found.rr / UNIT)[..., None], WINDOW, axis=2)
        x = np.concatenate([found.x.astype(np.float32), constant], axis=1, dtype=np.float32)
    clients = by_client(x, found.y, found.client)
    groups = {name: [one for one in records if one in clients] for name, records in GROUPS.items()}
    return NaturalClients(clients, replace(ECG, shape=x.shape[1:]), groups)


GROUPS = {"DS1": DS1, "DS2": DS2}


def _chosen(beats: Beats, which: NDArray[Any]) -> Beats:
    return Beats._make(array[which] for array in beats)


def _thinned(client: NDArray[np.str_], most: int) -> NDArray[np.int64]:
    """At most this many places of every client, evenly spaced and in order.

    >>> _thinned(np.array(["a", "a", "a", "a", "b"]), 2)
    array([0, 2, 4])
    """
    own = (np.flatnonzero(client == one) for one in np.unique(client))
    return np.array([place for places in own for place in evenly(places.tolist(), most)])


def _beats(name: str, record: Record) -> Beats:
    """Windows around the beats that have neighbours and lie within the record; every second sample."""
    if record.frequency != FREQUENCY:
        raise DataError(f"record {name} has {record.frequency:g} samples per second instead of {FREQUENCY}")
    lead = record.leads.index("MLII") if "MLII" in record.leads else 0
    signal, places = record.signals[lead], record.places
    intervals = np.diff(places) / FREQUENCY
    first, width = 2 * PEAK, 2 * WINDOW
    chosen = [
        number
        for number in range(1, len(places) - 1)
        if record.symbols[number] in AAMI and first <= places[number] <= len(signal) - width + first
    ]
    starts = places[chosen] - first
    x = signal[starts[:, None] + np.arange(0, width, 2)] / UNIT
    y = np.array([AAMI[record.symbols[number]] for number in chosen], np.int64)
    rr = np.stack([intervals[np.array(chosen, int) - 1], intervals[chosen]], 1).astype(np.float32)
    return Beats(np.round(x).astype(np.int16)[:, None], y, rr, np.full(len(chosen), name))


def _packed(path: Path) -> Beats:
    arrays = read_npz(path)
    try:
        x, y, rr = arrays["x"], arrays["y"].astype(np.int64), arrays["rr"].astype(np.float32)
        scale, client = float(arrays["scale"]), arrays["client"].astype(np.str_)
        fitting = x.dtype == np.int16 and x.shape[1:] == (1, WINDOW) and rr.shape == (len(x), 2)
        if not fitting or y.shape != client.shape or len(y) != len(x) or not np.isclose(scale, UNIT):
            raise ValueError("its arrays do not fit together")
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a file of heartbeats ({error!r}): get it again") from error
    return Beats(x, y, rr, client)
