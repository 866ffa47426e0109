"""What a population is made of: written, verified, and every kind of difference named."""

import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttpfl
from tests.helpers.small_digits import CLIENTS, federated, few_digits
from ttpfl.data import Images, federate, load_population
from ttpfl.data.federate import Federated
from ttpfl.data.manifest import sha256
from ttpfl.errors import DataError
from ttpfl.util.checksum import sealed

CHOICES = {"shift": "hybrid", **CLIENTS, "ratio": 4.0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "manifest.json"


def resealed(found: dict[str, Any]) -> str:
    """As somebody would write it who knows the format."""
    return json.dumps(sealed({key: value for key, value in found.items() if key != "checksum"}))


def digits(path: Path | None = None, **choices: Any) -> Federated:
    return federate("digits", manifest=path, **{**CHOICES, **choices})


def test_it_says_what_the_clients_have(path: Path) -> None:
    population, target_labels, manifest = federated(manifest=path, data_dir=path.parent)
    found = json.loads(path.read_text())
    assert found["setting"]["seed"] == 0
    assert found["setting"]["shift"] == "hybrid"
    assert found["made_with"]["ttpfl"] == ttpfl.__version__
    assert found["made_with"]["numpy"] == np.__version__
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["source"] + found["target"]]
    assert [row["id"] for row in rows] == [c.id for c in [*population.source, *population.target]]
    y = few_digits().y
    for row, client in zip(rows, population.source, strict=False):
        ids = np.concatenate([client.train_ids, client.validation_ids])
        assert row["sha256"] == hashlib.sha256(b"<i8(%d,)" % len(ids) + ids.tobytes()).hexdigest()
        assert row["classes"] == [int((y[ids] == c).sum()) for c in range(10)]
        assert row["validation"] == len(client.validation_ids)
    for row, target in zip(rows[len(population.source) :], population.target, strict=True):
        assert row["classes"] == [int((target_labels[target.id] == c).sum()) for c in range(10)]
        assert (row["corruption"], row["severity"]) == target.corruption
    images = few_digits()
    assert found["data"]["sha256"] == sha256([images.x, images.y, images.domain])
    assert len(path.read_text().splitlines()) == 2 + 6 + 2 * 2 + len(rows)  # one client per line
    assert manifest.digest == federated(data_dir=path.parent).manifest.digest


def test_a_population_is_made_again_from_its_manifest(path: Path) -> None:
    made = digits(path, seed=3)
    before = path.read_bytes()
    again = load_population(path)
    assert again.manifest == made.manifest
    assert path.read_bytes() == before
    for old, new in zip(made.population.source, again.population.source, strict=True):
        assert np.array_equal(old.train_ids, new.train_ids)
        assert np.array_equal(old.validation_labels, new.validation_labels)


def test_hashes_are_the_same_in_another_process(path: Path, tmp_path: Path) -> None:
    made = digits(path)
    pixels = sha256([c.take(c.ids) for c in made.population.target[:2]])
    code = (
        "import sys; from ttpfl.data import load_population; from ttpfl.data.manifest import sha256;"
        "made = load_population(sys.argv[1]);"
        "print(made.manifest.digest, sha256([c.take(c.ids) for c in made.population.target[:2]]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code, path], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [made.manifest.digest, pixels]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("source", 2, 6), "0" * 64, r"sha256 of client source-2 was 0000.*, it is [0-9a-f]{64}"),
        (("target", 1, 4), [1, 2], r"classes of client target-1 was \[1, 2\], it is \[\d+, "),
        (("target", 0, 2), "snow", r"corruption of client target-0 was snow, it is "),
        (("source", 0, 3), 9, r"severity of client source-0 was 9, it is [1-5]"),
        (("source", 5, 5), 0, r"validation of client source-5 was 0, it is \d+"),
        (("source", 1, 0), "source-9", r"id of client source-9 was source-9, it is source-1"),
        (("source", 1, 1), "moon", r"domain of client source-1 was moon, it is all"),
        (("data", "sha256"), "1" * 64, r"sha256 of the data was '1111.*', it is '[0-9a-f]{64}'"),
        (("setting", "seed"), 1, r"seed of the config was 1, it is 0"),
        (("setting", "new"), 1, r"new of the config was 1, it is None"),
    ],
)
def test_every_difference_is_named(path: Path, place: tuple[Any, ...], value: Any, message: str) -> None:
    federated(manifest=path, data_dir=path.parent)
    found = json.loads(path.read_text())
    part = found
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    found["made_with"]["numpy"] = "1.0"
    path.write_text(resealed(found))
    with pytest.raises(DataError, match=message) as error:
        federated(manifest=path, data_dir=path.parent)
    assert str(path) in str(error.value)
    assert f"numpy 1.0, python {found['made_with']['python']}; this is ttpfl" in str(error.value)


@pytest.mark.parametrize(("part", "count"), [("source", 5), ("target", 3)])
def test_missing_clients_are_noticed(path: Path, part: str, count: int) -> None:
    federated(manifest=path, data_dir=path.parent)
    found = json.loads(path.read_text())
    found[part].pop()
    path.write_text(resealed(found))
    with pytest.raises(DataError, match=f"there were {count} {part} clients, there are {count + 1}"):
        federated(manifest=path, data_dir=path.parent)


def test_other_images_are_noticed(path: Path) -> None:
    images = few_digits()
    federated(manifest=path, data_dir=path.parent)
    x = images.x.copy()
    x[7, 5, 5, 1] ^= 1
    with pytest.raises(DataError, match="sha256 of the data was"):
        federate(Images(x, images.y, images.domain, images.info), manifest=path, **CHOICES)


def test_a_later_run_is_compared_with_the_cached_one(tmp_path: Path) -> None:
    federated(data_dir=tmp_path)
    (path,) = (tmp_path / "cache").glob("*.json")
    path.write_text(resealed(json.loads(path.read_text().replace("source-3", "source-7"))))
    with pytest.raises(DataError, match="client source-7"):
        federated(data_dir=tmp_path)
    federated(data_dir=tmp_path, seed=1)  # another population, another file
    assert len(list((tmp_path / "cache").glob("*.json"))) == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": 1}', b"null"],
)
def test_what_is_no_manifest_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    for attempt in (lambda: load_population(path), lambda: federated(manifest=path, data_dir=path.parent)):
        with pytest.raises(DataError, match=r"manifest\.json is not a valid manifest .*make the pop"):
            attempt()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        {"data": 5},
        {"data": {}},
        {"setting": 5},
        {"made_with": "numpy"},
        {"source": 5},
        {"source": [["a"]]},
        {"target": None},
    ],
)
def test_wrong_parts_are_refused(path: Path, change: dict[str, Any]) -> None:
    federated(manifest=path, data_dir=path.parent)
    path.write_text(resealed({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match="is not a valid manifest"):
        load_population(path)


def test_another_format_is_refused(path: Path) -> None:
    federated(manifest=path, data_dir=path.parent)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3}))
    with pytest.raises(DataError, match="has format 3, but this version reads 2: make the population again"):
        load_population(path)


def test_an_edited_manifest_is_refused(path: Path) -> None:
    federated(manifest=path, data_dir=path.parent)
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1', 1))
    with pytest.raises(DataError, match=r"manifest\.json is damaged \(its checksum does not match\)"):
        load_population(path)


def test_the_format_before_checksums_is_read_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = digits(path)
    found = json.loads(path.read_text())
    del found["checksum"]
    path.write_text(json.dumps({**found, "format": 1}))
    for _ in range(2):
        assert load_population(path).manifest == made.manifest
    assert [record.message for record in caplog.records] == [
        f"{path} was written by an earlier version, without a checksum: damage would go unnoticed"
    ]


def test_options_of_the_data_set_come_back_as_they_went(tmp_path: Path) -> None:
    """A tuple is a list in JSON: the second time it must still be the same population."""
    for part in ("source", "target"):
        (tmp_path / part).mkdir()
        np.savez(tmp_path / part / "a.npz", x=few_digits().x[:5], y=few_digits().y[:5])
    path = tmp_path / "manifest.json"
    for _ in range(2):
        made = federate("arrays", data_dir=tmp_path, options={"image_size": (12, 10)}, manifest=path)
    assert load_population(path, data_dir=tmp_path).manifest == made.manifest
    assert made.population.info.image_size == (12, 10)


def test_a_cache_that_cannot_be_written_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING, "ttpfl"):
        population, _, _ = federated(data_dir=tmp_path / "file")
    assert len(population.source) == 6
    assert "could not be written" in caplog.text
    assert "this population will not be verified" in caplog.text
    with pytest.raises(OSError, match="file"):
        federated(data_dir=tmp_path, manifest=tmp_path / "file" / "manifest.json")


def test_of_many_drawn_clients_some_are_listed_and_all_counted(tmp_path: Path) -> None:
    many = {"shift": "label", "replacement": True, "samples": 20, "data_dir": tmp_path}
    _, _, manifest = federated(**many, source_clients=3000, target_clients=1200)
    assert [row[0] for row in manifest.source[:3]] == ["source-0", "source-3", "source-6"]
    assert len(manifest.source) == 1000
    assert len(manifest.target) == 600
    assert manifest.data["source_clients"] == 3000
    assert manifest.data["target_clients"] == 1200
