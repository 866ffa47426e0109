"""Data sets of persons, patients, speakers and hospitals, from tiny files in the official formats."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.real_data import needed
from ttpfl.data import NaturalClients, NaturalConfig, dataset_info, federate, is_there, load
from ttpfl.data.datasets.heart import FEATURES
from ttpfl.errors import DataError, DataMissingError

NATURAL = ("har", "ecg", "spoken-digits", "heart")


@pytest.mark.parametrize("name", NATURAL)
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    assert not is_there(name, tmp_path)
    with pytest.raises(DataMissingError, match=r"there (is|are) (no|neither) .*Put "):
        load(name, tmp_path)
    info = dataset_info(name)
    assert info.natural
    assert info.licence


# Human activities: text files


def write_har(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Three windows of persons 1 and 3 for training, and two of person 2 for testing."""
    random, written = np.random.default_rng(0), {}
    for part, subjects, labels in (("train", [1, 1, 3], [5, 1, 6]), ("test", [2, 2], [2, 2])):
        place = folder / "UCI HAR Dataset" / part
        (place / "Inertial Signals").mkdir(parents=True)
        (place / f"subject_{part}.txt").write_text("".join(f"{number}\n" for number in subjects))
        (place / f"y_{part}.txt").write_text("".join(f"{number}\n" for number in labels))
        for signal in ("total_acc", "body_acc", "body_gyro"):
            for axis in "xyz":
                x = written[f"{signal}_{axis}_{part}"] = random.normal(size=(len(labels), 128))
                lines = ["  " + "  ".join(f"{value:.7e}" for value in row) for row in x]
                path = place / "Inertial Signals" / f"{signal}_{axis}_{part}.txt"
                path.write_text("\n".join(lines) + "\n")
    return written


def test_har(tmp_path: Path) -> None:
    written = write_har(tmp_path)
    data = load("har", tmp_path)
    assert isinstance(data, NaturalClients)
    assert list(data.clients) == ["1", "2", "3"]
    assert {name: client.y.tolist() for name, client in data.clients.items()} == {
        "1": [4, 0], "2": [1, 1], "3": [5],
    }  # fmt: skip
    expected = [written["total_acc_y_train"][2], written["total_acc_y_test"][1]]
    found = [np.asarray(data.clients["3"].x)[0, 1], np.asarray(data.clients["2"].x)[1, 1]]
    assert np.allclose(found, expected, atol=1e-6)
    nine = load("har", tmp_path, signals="all")
    assert nine.info.shape == (9, 128)
    assert np.allclose(np.asarray(nine.clients["1"].x)[1, 8], written["body_gyro_z_train"][1], atol=1e-6)
    broken = tmp_path / "UCI HAR Dataset" / "test" / "y_test.txt"
    broken.write_text("2\n")
    with pytest.raises(DataError, match="do not fit together"):
        load("har", tmp_path)
    broken.write_text("walking\n")
    with pytest.raises(DataError, match="is not a table of numbers"):
        load("har", tmp_path)


def test_har_in_one_file(tmp_path: Path) -> None:
    """The classes of the file may be in another order."""
    classes = sorted(dataset_info("har").classes)
    arrays = {"x": np.zeros((4, 3, 128), np.int16), "client": np.array([1, 1, 2, 2]), "scale": np.array(0.5)}
    np.savez(tmp_path / "har.npz", **arrays, y=np.array([0, 3, 1, 0]), classes=np.array(classes))
    data = load("har", tmp_path)
    assert [data.info.classes[label] for label in data.clients["1"].y] == ["LAYING", "WALKING"]
    assert data.info.scale == 0.5
    with pytest.raises(DataError, match=r"which har\.npz does not have"):
        load("har", tmp_path, signals="all")
    np.savez(tmp_path / "har.npz", **arrays, y=np.zeros(4, int), classes=np.array(["a"]))
    with pytest.raises(DataError, match="or has other classes"):
        load("har", tmp_path)


# Heartbeats: WFDB

TYPES = {"N": 1, "L": 2, "A": 8, "V": 5, "F": 6, "/": 12, "+": 28}


def packed(signals: NDArray[np.int64]) -> bytes:
    """Format 212: samples of all leads in turn, in pairs of 12 bits."""
    numbers = signals.T.ravel() & 0xFFF
    first, second = numbers[::2], numbers[1::2]
    triples = np.stack([first & 0xFF, first >> 8 | second >> 8 << 4, second & 0xFF], 1)
    return triples.astype(np.uint8).tobytes()


def annotations(marks: list[tuple[int, str]]) -> bytes:
    """The MIT format: 6 bits of type, 10 bits of time since the last; a rhythm has a text."""
    words, last = [], 0
    for place, symbol in marks:
        gap, last = place - last, place
        if gap > 1023:
            words += [59 << 10, gap >> 16, gap & 0xFFFF]
            gap = 0
        words.append(TYPES[symbol] << 10 | gap)
        if symbol == "+":
            words += [63 << 10 | 3, int.from_bytes(b"(N", "little"), ord("\0")]
    return np.array([*words, 0], "<u2").tobytes()


def write_record(folder: Path, name: str, marks: list[tuple[int, str]], leads: tuple[str, str]) -> Any:
    random = np.random.default_rng(int(name))
    signals = random.integers(-2048, 2048, (2, 6000))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.dat").write_bytes(packed(signals))
    (folder / f"{name}.atr").write_bytes(annotations(marks))
    lines = [f"{name}.dat 212 200 11 1024 995 -22131 0 {lead}" for lead in leads]
    (folder / f"{name}.hea").write_text("\n".join([f"{name} 2 360 6000", *lines, "# 69 M"]) + "\n")
    return (signals - 1024) / 200


def test_ecg(tmp_path: Path) -> None:
    marks = [
        (18, "+"),
        (90, "N"),
        (400, "N"),
        (2000, "A"),
        (2300, "/"),
        (2600, "L"),
        (3000, "V"),
        (5900, "F"),
    ]
    signals = write_record(tmp_path / "mitdb", "100", marks, ("MLII", "V5"))
    swapped = write_record(tmp_path / "mitdb", "102", [(9, "N"), (800, "F"), (990, "N")], ("V5", "MLII"))
    data = load("ecg", tmp_path)
    assert list(data.clients) == ["100", "102"]
    # The first and the last beat have no neighbour; the paced one has no class of the AAMI.
    assert data.clients["100"].y.tolist() == [0, 1, 0, 2]
    x = np.asarray(data.clients["100"].x)
    for row, place in enumerate((400, 2000, 2600, 3000)):
        assert np.array_equal(x[row, 0], np.round(1000 * signals[0, place - 110 : place + 146 : 2]))
    assert np.asarray(data.clients["102"].x)[0, 0, 55] == np.round(1000 * swapped[1, 800])
    with_rr = np.asarray(load("ecg", tmp_path, rr=True).clients["100"].x) * 0.001
    assert with_rr.shape == (4, 3, 128)
    assert np.allclose(with_rr[1, 1:, 7], [1600 / 360, 300 / 360])
    assert list(load("ecg", tmp_path, paced=False).clients) == ["100"]


def test_the_usual_split_of_patients(tmp_path: Path) -> None:
    for name in ("100", "101", "103", "106"):
        write_record(tmp_path / "mitdb", name, [(9, "N"), (800, "F"), (990, "N")], ("MLII", "V1"))
    divided = load("ecg", tmp_path).divided(NaturalConfig(held_out="DS2"))
    assert (list(divided.source), list(divided.target)) == (["101", "106"], ["100", "103"])


def test_a_header_with_its_own_baseline(tmp_path: Path) -> None:
    """As the wfdb package writes it: the value at 0 mV in brackets, and 0 as the converter's zero."""
    marks = [(9, "N"), (800, "V"), (990, "N")]
    write_record(tmp_path / "mitdb", "100", marks, ("MLII", "V5"))
    usual, header = np.asarray(load("ecg", tmp_path).clients["100"].x), tmp_path / "mitdb" / "100.hea"
    header.write_text(header.read_text().replace(" 200 11 1024 ", " 200.0(1024)/mV 11 0 "))
    assert np.array_equal(np.asarray(load("ecg", tmp_path).clients["100"].x), usual)


def test_fewer_beats_are_spread_over_the_record(tmp_path: Path) -> None:
    marks = [(200 + 300 * number, "NV"[number % 2]) for number in range(18)]
    write_record(tmp_path / "mitdb", "100", marks, ("MLII", "V5"))
    every, four = (np.asarray(load("ecg", tmp_path, beats=most).clients["100"].x) for most in (None, 4))
    assert len(every) == 16
    assert np.array_equal(four, every[::4])
    assert load("ecg", tmp_path, beats=4).clients["100"].y.tolist() == [2, 2, 2, 2]
    assert len(load("ecg", tmp_path, beats=99).clients["100"].x) == 16


def test_bad_records(tmp_path: Path) -> None:
    write_record(tmp_path / "mitdb", "100", [(9, "N"), (800, "F"), (990, "N")], ("MLII", "V1"))
    header = tmp_path / "mitdb" / "100.hea"
    sound = header.read_text()
    header.write_text(sound.replace(" 212 ", " 16 "))
    with pytest.raises(DataError, match=r"100\.hea is not a record .* format 212"):
        load("ecg", tmp_path)
    header.write_text(sound.replace("100 2 360", "100 2 250"))
    with pytest.raises(DataError, match="record 100 has 250 samples per second instead of 360"):
        load("ecg", tmp_path)
    header.write_text(sound.replace("100.dat 212", "../100.dat 212"))
    with pytest.raises(DataError, match=r"100\.hea is not a record"):
        load("ecg", tmp_path)
    np.savez(tmp_path / "ecg.npz", x=np.zeros(3))
    for path in (tmp_path / "mitdb").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="is not a file of heartbeats"):
        load("ecg", tmp_path)


# Spoken digits: wav files


def write_wav(path: Path, sound: NDArray[np.int16], rate: int = 8000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(sound.astype("<i2").tobytes())


def tone(frequency: float, seconds: float = 0.4) -> NDArray[np.int16]:
    return (9000 * np.sin(2 * np.pi * frequency * np.arange(int(8000 * seconds)) / 8000)).astype(np.int16)


def test_spoken_digits(tmp_path: Path) -> None:
    folder = tmp_path / "free-spoken-digit-dataset" / "recordings"
    sounds = {"0_ann_0": tone(500), "7_ann_1": tone(2000), "3_bob_0": tone(1000, 2.0)}
    for name, sound in sounds.items():
        write_wav(folder / f"{name}.wav", sound)
    data = load("spoken-digits", tmp_path)
    assert {name: client.y.tolist() for name, client in data.clients.items()} == {"ann": [0, 7], "bob": [3]}
    spectra = {name: np.asarray(client.x)[:, 0] for name, client in data.clients.items()}
    frequencies = (63 - spectra["ann"][:, :, :20].mean(2).argmax(1)) * 8000 / 126  # the last row is 0 Hz
    assert np.allclose(frequencies, [500, 2000], atol=40)
    assert spectra["ann"][0, :, 40:].max() == pytest.approx(np.log(1e-8))  # silence after 0.4 seconds
    assert spectra["bob"][0, 63 - 16].min() > 0  # longer than a second: cut
    arrays = {"samples": np.concatenate([*sounds.values()]), "length": [*map(len, sounds.values())]}
    (tmp_path / "packed").mkdir()
    np.savez(
        tmp_path / "packed" / "fsdd.npz", **arrays, y=[0, 7, 3], client=[0, 0, 1], speakers=["ann", "bob"]
    )
    packed_data = load("spoken-digits", tmp_path / "packed")
    for name, client in data.clients.items():
        assert np.array_equal(np.asarray(packed_data.clients[name].x), np.asarray(client.x))
    write_wav(folder / "1_cem_0.wav", tone(500), rate=16000)
    with pytest.raises(DataError, match=r"1_cem_0\.wav is not mono with 16 bits at 8000 Hz"):
        load("spoken-digits", tmp_path)
    (folder / "1_cem_0.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"1_cem_0\.wav is not a valid wav file"):
        load("spoken-digits", tmp_path)
    (folder / "1_cem_0.wav").rename(folder / "one.wav")
    with pytest.raises(DataError, match=r"one\.wav is not named <digit>_<speaker>_<number>\.wav"):
        load("spoken-digits", tmp_path)


# Heart disease: four tables without a header


def test_heart(tmp_path: Path) -> None:
    folder = tmp_path / "heart-disease"
    folder.mkdir()
    for number, name in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0",
            f"{40 + number},1,4,160,?,0,2,108,1,1.5,2,?,3,{number}",
            "52,0,2,120,210,0,0,148,0,?,?,?,?,0",
        ]
        (folder / f"processed.{name}.data").write_text("\n".join(rows) + "\n")
    data = load("heart", tmp_path)
    assert [client.y.tolist() for client in data.clients.values()] == [[0, int(n > 0), 0] for n in range(4)]
    assert np.asarray(data.clients["va"].x)[1, 0] == 43
    assert np.isnan(np.asarray(data.clients["va"].x)[1, FEATURES.index("chol")])
    (folder / "processed.va.data").write_text("63,1,4,0,0,0,0,0,0,0,1,0,3,1\n")
    (zeros,) = np.asarray(load("heart", tmp_path).clients["va"].x)
    assert [name for name, value in zip(FEATURES, zeros, strict=True) if np.isnan(value)] == [
        "trestbps",
        "chol",
    ]
    (folder / "processed.va.data").write_text("\n".join(rows) + "\n")
    population = federate(data, data_dir=tmp_path, held_out="va").population
    assert len(population.source) == 3
    assert population.target[0].tensor(np.array([1]))[0, FEATURES.index("chol")] == 0  # the sources' mean
    assert len(federate(data, data_dir=tmp_path, fold=3).population.target) == 1  # four folds by default
    (folder / "processed.va.data").write_text("63,1\n")
    with pytest.raises(DataError, match=r"row 1 of .* has 2 cells instead of 14"):
        load("heart", tmp_path)


@pytest.mark.parametrize(
    ("name", "clients", "samples"), [("har", 30, 10_119), ("ecg", 48, 101_363), ("spoken-digits", 6, 3000)]
)
def test_real_files(real_data: Path, name: str, clients: int, samples: int) -> None:
    needed(real_data / {"spoken-digits": "fsdd.npz"}.get(name, f"{name}.npz"))
    data = load(name, real_data)
    assert len(data.clients) == clients
    assert sum(len(client.x) for client in data.clients.values()) == samples
