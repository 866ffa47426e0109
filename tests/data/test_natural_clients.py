"""Clients that exist by themselves: samples of any shape, held out whole, normalised by source clients."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ttpfl
from tests.helpers.persons import CLASSES, signals, write_signals, write_table
from ttpfl.data import NaturalClients, NaturalConfig, federate, load, load_population
from ttpfl.data.samples import Moments
from ttpfl.errors import DataError, DataMissingError
from ttpfl.evaluation import Evaluator


def all_ids(data: NaturalClients, **choices: Any) -> tuple[list[str], list[str]]:
    divided = data.divided(NaturalConfig(**choices))
    return list(divided.source), list(divided.target)


def test_every_person_is_new_in_one_fold(tmp_path: Path) -> None:
    write_signals(tmp_path, persons=7)
    data = load("arrays", tmp_path)
    assert isinstance(data, NaturalClients)
    assert data.info.classes == CLASSES
    parts = [all_ids(data, folds=3, fold=fold) for fold in range(3)]
    assert sorted(name for _, new in parts for name in new) == [str(n) for n in range(1, 8)]
    for source, new in parts:
        assert not {*source} & {*new}
        assert len(source) + len(new) == 7
        assert len(new) in (2, 3)
    assert parts[1] == all_ids(data, folds=3, fold=1, seed=5)  # the same for every seed
    assert all_ids(data, held_out=["2", "7"])[1] == ["2", "7"]
    with pytest.raises(DataError, match=r"unknown client '9' of arrays"):
        all_ids(data, held_out="9")
    with pytest.raises(DataError, match="folds is 8, but only 7 clients have labels"):
        all_ids(data, folds=8)
    with pytest.raises(DataError, match="no source client is left"):
        all_ids(data, held_out=[str(n) for n in range(1, 8)])


def test_clients_keep_their_samples_in_order(tmp_path: Path) -> None:
    arrays = write_signals(tmp_path)
    population, labels, _ = federate("arrays", data_dir=tmp_path, held_out="3,5", split="recorded")
    assert [client.id for client in population.target] == ["3", "5"]
    for client in population.target:
        own = arrays["client"] == int(client.id)
        assert np.array_equal(client.take(client.ids), arrays["x"][own])
        assert labels[client.id].tolist() == arrays["y"][own].tolist()
        assert not client.shuffled
    for source in population.source:  # the last fifth, which is of the last class, is for validation
        own = arrays["y"][arrays["client"] == int(source.id)]
        assert source.train_ids.tolist() == list(range(24))
        assert source.validation_labels.tolist() == own[24:].tolist() == [2] * 6
    shuffled, _, _ = federate("arrays", data_dir=tmp_path, held_out="3,5")
    assert shuffled.source[0].train_ids.tolist() != list(range(24))


def test_normalisation_comes_from_source_training_data_alone(tmp_path: Path) -> None:
    arrays = write_signals(tmp_path)
    before, _, _ = federate("arrays", data_dir=tmp_path, held_out="2")
    training = np.concatenate([client.take(client.train_ids) for client in before.source]) * 0.001
    assert np.allclose(before.info.mean, training.mean((0, 2)), rtol=1e-12)
    assert np.allclose(before.info.std, training.std((0, 2)), rtol=1e-12)
    x = torch.cat([client.train().x for client in before.source])
    assert x.dtype == torch.float32
    assert torch.allclose(x.mean((0, 2)), torch.zeros(2), atol=1e-6)
    assert torch.allclose(x.std((0, 2), correction=0), torch.ones(2), atol=1e-6)
    changed = np.array(arrays["x"])
    for client in before.source:  # change everything that must not matter
        rows = np.flatnonzero(arrays["client"] == int(client.id))
        changed[rows[client.validation_ids]] = 3000
    changed[arrays["client"] == 2] = -3000
    np.savez(tmp_path / "data.npz", **{**arrays, "x": changed})
    after, _, _ = federate("arrays", data_dir=tmp_path, manifest=tmp_path / "m.json", held_out="2")
    assert (after.info.mean, after.info.std) == (before.info.mean, before.info.std)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    random = np.random.default_rng(0)
    values = random.normal(1e6, 0.01, (500, 3, 7))  # where the difference of squares would have no digit left
    values[:, 2] = 5.0
    values[random.random((500, 3, 7)) < 0.1] = np.nan
    moments = Moments(3)
    for part in np.array_split(values, [1, 3, 200]):
        moments.add(Moments.of(part))
    assert np.allclose(moments.mean, np.nanmean(values, (0, 2)), rtol=1e-14)
    assert np.allclose(moments.std[:2], np.nanstd(values, (0, 2))[:2], rtol=1e-6)
    assert moments.std[2] == 1.0  # constant


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(4,), (2, 9), (1, 6, 6), (2, 3, 4, 5)])
def test_samples_of_any_shape_and_type(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, client = random.integers(0, 100, (40, *shape)).astype(dtype), np.repeat(["a", "b", "c", "d"], 10)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(40) % 2, client=client)
    options = {"images": False, "scale": 0.5}
    population = federate("arrays", data_dir=tmp_path, options=options, held_out="b").population
    assert population.info.shape == shape
    new = population.target[0]
    channels = (-1, *[1] * (len(shape) - 1))
    mean, std = (np.reshape(numbers, channels) for numbers in (population.info.mean, population.info.std))
    expected = (x[10:20].astype(np.float64) * 0.5 - mean) / std
    assert torch.allclose(new.tensor(new.ids).double(), torch.from_numpy(expected), atol=1e-5)


def test_images_of_persons_are_images(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(12) % 2, client=np.repeat([0, 1, 2], 4))
    population = federate("arrays", data_dir=tmp_path, folds=3).population
    assert population.info.image_size == (8, 8)
    assert population.source[0].train().x.shape == (3, 3, 8, 8)


def test_a_manifest_describes_persons(tmp_path: Path) -> None:
    arrays = write_signals(tmp_path)
    path = tmp_path / "manifest.json"
    made = federate("arrays", data_dir=tmp_path, manifest=path, folds=3, fold=2)
    assert load_population(path, data_dir=tmp_path).manifest.digest == made.manifest.digest
    with pytest.raises(DataError, match="fold of the config was 2, it is 1"):
        federate("arrays", data_dir=tmp_path, manifest=path, folds=3, fold=1)
    np.savez(tmp_path / "data.npz", **{**arrays, "x": np.array(arrays["x"])[::-1]})
    with pytest.raises(DataError, match="sha256 of the data was"):
        load_population(path, data_dir=tmp_path)


def test_memory_mapped_files_are_not_copied(tmp_path: Path) -> None:
    arrays = signals(persons=200, samples=300)
    scattered = np.random.default_rng(0).permutation(len(arrays["y"]))
    for name in ("x", "y", "client"):
        np.save(tmp_path / f"{name}.npy", np.array(arrays[name])[scattered])
    size = (tmp_path / "x.npy").stat().st_size
    tracemalloc.start()
    population, labels, _ = federate("arrays", data_dir=tmp_path, options={"scale": 0.001}, held_out="7")
    batch = next(iter(population.target[0].stream(20)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert batch.shape == (20, 2, 16)
    own = scattered[np.array(arrays["client"])[scattered] == 7]
    assert np.array_equal(population.target[0].take(np.arange(5)), np.array(arrays["x"])[own[:5]])
    assert labels["7"].tolist() == np.array(arrays["y"])[own].tolist()
    assert size > 3_800_000
    # Labels, clients and their order take 8 bytes each; a copy of the samples would take 64 per sample.
    assert peak < 0.9 * size


def test_clients_without_labels_are_always_new(tmp_path: Path) -> None:
    arrays = signals()
    y = np.where(np.array(arrays["client"]) == 4, -1, arrays["y"])
    np.savez(tmp_path / "data.npz", **{**arrays, "y": y})
    for fold in range(5):
        population, labels, _ = federate("arrays", data_dir=tmp_path, fold=fold)
        assert "4" in [client.id for client in population.target]
        assert "4" not in labels
    y[np.flatnonzero(np.array(arrays["client"]) == 1)[0]] = -1
    np.savez(tmp_path / "data.npz", **{**arrays, "y": y})
    with pytest.raises(DataError, match="client '1' has 1 samples without and 29 with a label"):
        load("arrays", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(180)}, r"x in .* is float64 \(180,\); it must be numbers of shape"),
        ({"x": np.zeros((180, 2, 4), complex)}, "x in .* is complex128"),
        ({"y": np.zeros(180)}, "y in .* must be 180 integers, one per sample"),
        ({"client": np.zeros(3, int)}, "client in .* must be 180 numbers or names"),
        ({"client": None}, "has no array 'client'"),
        ({"scale": np.array(0.0)}, "scale in .* must be one number other than 0"),
        ({"classes": np.array([1, 2])}, "classes in .* must be a list of names"),
        ({"classes": np.array(["a"])}, "labels of client '1': number 10 is 1, but there are 1 classes"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in {**signals(), **change}.items() if array is not None}
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load("arrays", tmp_path)


def test_a_damaged_npy_file(tmp_path: Path) -> None:
    for name, array in signals().items():
        np.save(tmp_path / f"{name}.npy", array)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-10])
    with pytest.raises(
        DataError, match=r"x\.npy is not a valid npy file .*declares 11520 bytes but has 11510"
    ):
        load("arrays", tmp_path)


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    arrays = signals()
    x = np.array(arrays["x"], np.float64)
    x[0, 1, 3] = np.nan
    np.savez(tmp_path / "data.npz", **{**arrays, "x": x})
    with pytest.raises(DataError, match=r"source client '1' has NaN or Inf: .*missing='mean'"):
        federate("arrays", data_dir=tmp_path, held_out="2", split="recorded")
    population = federate("arrays", data_dir=tmp_path, held_out="1").population
    with pytest.raises(DataError, match=r"sample 0 has NaN or Inf \(channel 1\)") as error:
        next(population.target[0].stream(20))
    assert "at client '1'" in error.value.__notes__
    options = {"missing": "mean"}
    population = federate("arrays", data_dir=tmp_path, options=options, held_out="1").population
    assert next(population.target[0].stream(20))[0, 1, 3] == 0.0  # the mean of the source clients
    x[0, 1, 3] = np.inf
    np.savez(tmp_path / "data.npz", **{**arrays, "x": x})
    population = federate("arrays", data_dir=tmp_path, options=options, held_out="1").population
    with pytest.raises(DataError, match=r"sample 0 has NaN or Inf \(channel 1\): correct it\nat client"):
        next(population.target[0].stream(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file": "../data.npz"}, "file must be the name of a file in the data directory"),
        ({"file": "other.npz"}, r"there is no other\.npz in"),
        ({"scale": 0}, "scale must be a number other than 0"),
        ({"mean": [0, 0]}, "mean is .* and std is None: give both, or none"),
        ({"mean": 0, "std": [1, 1, 1]}, "or one for each of the 2 channels"),
        ({"mean": 0, "std": -1}, "std must be positive"),
        ({"missing": "drop"}, "missing must be 'error' or 'mean'"),
        ({"image_size": 8}, "image_size is .* but the samples are no images"),
        ({"augmentation": "flips"}, "augmentation is 'flips', but the samples are no images"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write_signals(tmp_path)
    with pytest.raises((DataError, DataMissingError), match=message):
        load("arrays", tmp_path, **options)


def test_an_option_of_the_data_set_is_not_one_of_its_clients(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"paced is an option of the data set ecg.*options=\{'paced': False\}"
    ):
        federate("ecg", data_dir=tmp_path, held_out="DS2", paced=False)


def test_given_normalisation_is_used(tmp_path: Path) -> None:
    write_signals(tmp_path)
    options = {"mean": [1.0, 2.0], "std": 4, "scale": 2}
    client = federate("arrays", data_dir=tmp_path, options=options).population.target[0]
    expected = (client.take(client.ids) * 2.0 - [[1.0], [2.0]]) / 4
    assert np.allclose(client.tensor(client.ids), expected)


def test_divided_clients_of_any_shape(tmp_path: Path) -> None:
    """One file or folder per client, as for images."""
    arrays = signals(persons=3)
    for number, place in enumerate(("source/a", "source/b", "target/c"), start=1):
        rows = arrays["client"] == number
        (tmp_path / place).mkdir(parents=True)
        if number == 2:  # memory-mapped
            np.save(tmp_path / place / "x.npy", arrays["x"][rows])
            np.save(tmp_path / place / "y.npy", arrays["y"][rows])
        else:
            np.savez(tmp_path / f"{place}.npz", x=arrays["x"][rows], y=arrays["y"][rows])
    population = federate("arrays", data_dir=tmp_path).population
    assert [client.id for client in population.source] == ["a", "b"]
    assert population.source[1].train().x.shape == (24, 2, 16)
    with pytest.raises(DataError, match="unknown option 'fold' of your own clients"):
        federate("arrays", data_dir=tmp_path, fold=1)
    np.savez(tmp_path / "target/c.npz", x=np.zeros((4, 2, 9)))
    with pytest.raises(
        DataError, match=r"target client 'c' has samples of float64 \(2, 9\), but all clients"
    ):
        load("arrays", tmp_path)


def test_a_table_with_sites(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv", unlabelled=1)
    data = load("table", tmp_path)
    assert (data.info.classes, data.info.shape) == (("ill", "well"), (2,))
    population, labels, _ = federate(data, data_dir=tmp_path, folds=4, fold=1)
    assert {client.id for client in population.target} >= {"site-4"}
    assert "site-4" not in labels
    assert len(population.source) == 3
    lines = [line.split(",") for line in (tmp_path / "table.csv").read_text().split()[1:]]
    expected = [[float(age), float(pressure)] for site, age, pressure, _ in lines if site == "site-4"]
    new = next(client for client in population.target if client.id == "site-4")
    assert np.allclose(new.take(new.ids), expected)
    only = load("table", tmp_path, features=["pressure"], classes=["well", "ill"])
    assert (only.info.classes, only.info.shape) == (("well", "ill"), (1,))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty"),
        ("site,label,a\n", {}, "has no rows"),
        ("site,label\nx,0\n", {}, "has no features, only site and label"),
        ("place,label,a\nx,0,1\n", {}, "unknown site column 'site' of table"),
        ("site,label,a\nx,0,high\n", {}, "column 'a' of .* has 'high' in row 1, which is no number"),
        ("site,label,a\nx,0\n", {}, "row 1 of .* has 2 cells instead of 3"),
        ("site,label,a,a\nx,0,1,2\n", {}, "has two columns 'a'"),
        ("site,label,a\nx,0,1\n", {"classes": ["1", "2"]}, "unknown label '0' in row 1 of table.csv"),
        ("site,label,a\nx,0,1\n", {"features": ["b"]}, "unknown feature column 'b'"),
        ("site,label,a\nx,0,\xff\n", {}, "is not UTF-8"),
        ("site;label;a\nx;0;1\n", {}, "has semicolons between its cells: separate them by commas"),
        ("site,label,a\nx,0,1\n,1,2\n", {}, "row 2 of .* has no site"),
        ("site,label,a\nx,0,inf\n", {}, "has 'inf' in row 1, which is no number"),
        ("site,label,a\nx,0,1e39\n", {"missing": "mean"}, "has '1e39' in row 1, which is no number"),
        ("PAR1\x15\x04", {}, "is a Parquet file: save it as CSV"),
        ("site,label,a\nx,,1\n", {}, "no client has labels"),
        ("site,label,a\nx,0,1\nx,1,2\n", {}, "one client with labels: at least two"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "table.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        federate("table", data_dir=tmp_path, options=options)


def test_empty_cells_are_missing_values(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("site,label,a,b\nx,0,1,5\nx,1,?,6\nx,0,3,7\ny,1,,8\n")
    population = federate("table", data_dir=tmp_path, options={"missing": "mean"}, held_out="y").population
    assert population.target[0].tensor(np.array([0]))[0, 0] == 0
    with pytest.raises(DataError, match=r"column 'a' of .*table.csv is empty in row 2: .*missing=mean"):
        federate("table", data_dir=tmp_path, held_out="y", split="recorded")


def test_a_model_trains_and_adapts_on_signals(tmp_path: Path) -> None:
    write_signals(tmp_path, persons=6, samples=60)
    population, labels, _ = federate("arrays", data_dir=tmp_path, held_out="5,6")
    torch.manual_seed(0)
    model = ttpfl.models.signal_cnn(3, population.info.shape)
    settings = ttpfl.federation.TrainSettings(rounds=6, lr=0.05, batch_size=10, workers=0)
    model = ttpfl.federation.train(model, population.source, settings).model.eval()
    evaluator = Evaluator(population.target, labels)
    assert evaluator.of_model(model)["accuracy"] > 0.6  # a third by chance
    rates = ttpfl.learn_rates(model, population.source, rounds=3)
    assert evaluator.of_rates(model, rates)["online"] > 0.6
