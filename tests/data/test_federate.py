"""Corrupted images: the same bytes however they are made, and a file of them that is whole or not there."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ttpfl
from tests.helpers.processes import alive, environment
from tests.helpers.small_digits import CLIENTS, federated, few_digits
from ttpfl.data import federate
from ttpfl.data.corruptions import corrupt
from ttpfl.data.federate import Federated
from ttpfl.data.storage import keep_digest
from ttpfl.errors import DataError
from ttpfl.util.parallel import cores, in_parallel


def pixels(made: Federated) -> dict[str, np.ndarray]:
    """All images of all clients as bytes."""
    found = {c.id: c.take(np.concatenate([c.train_ids, c.validation_ids])) for c in made.population.source}
    return found | {client.id: client.take(client.ids) for client in made.population.target}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)


def cached(directory: Path) -> list[str]:
    """Files of corrupted images, also those that are not complete, without their digests."""
    found = (path.name for path in (directory / "cache").glob("*") if path.suffix != ".sha256")
    return sorted(name for name in found if "corrupted" in name)


def corrupted_file(directory: Path) -> Path:
    (path,) = (directory / "cache").glob("*.npy")
    return path


# The same bytes


def test_bytes_are_the_same_alone_in_any_order_and_from_the_file(tmp_path: Path) -> None:
    made = federated(data_dir=tmp_path / "demand")
    expected = pixels(made)
    for client in reversed(made.population.target):
        order = np.random.default_rng(0).permutation(len(client.ids))
        assert np.array_equal(client.take(client.ids[order]), expected[client.id][order])
        assert np.array_equal(client.take(client.ids[7:8]), expected[client.id][7:8])
    for workers in (1, 2):
        directory = tmp_path / str(workers)
        assert same(pixels(federated(data_dir=directory, prepare=True, workers=workers)), expected)
        assert len(cached(directory)) == 1
        assert same(pixels(federated(data_dir=directory)), expected)  # found, not made


def test_bytes_depend_on_seed_client_and_image_alone() -> None:
    """Written out: nobody who has images of an earlier version must find others in their place."""
    images = few_digits()
    for seed in (0, 5):
        population, _, _ = federated(seed=seed, shift="feature")
        for number, client in enumerate([*population.source[:2], population.target[0]]):
            number = number if number < 2 else len(population.source)
            ids = client.ids if hasattr(client, "ids") else client.train_ids
            assert client.corruption is not None
            alone = [
                corrupt(images.x[[i]], *client.corruption, seeds=[(seed, 4, number, int(i))])[0]
                for i in ids[:5]
            ]
            assert np.array_equal(client.take(ids[:5]), alone)


def test_the_file_is_used_if_it_is_there(tmp_path: Path) -> None:
    federated(data_dir=tmp_path, prepare=True, workers=1)
    path = corrupted_file(tmp_path)
    rows = np.load(path, mmap_mode="r+")
    rows[:] = 77
    rows.flush()
    keep_digest(path, path)
    made = federated(data_dir=tmp_path)
    assert all((x == 77).all() for x in pixels(made).values())
    with pytest.raises(ValueError, match="read-only"):
        made.population.target[0].take.func.__self__.corrupted[0] = 1  # type: ignore[attr-defined]
    other = federated(data_dir=tmp_path, seed=1)
    assert not any((x == 77).all() for x in pixels(other).values())


@pytest.mark.parametrize("choices", [{"shift": "label"}, {"replacement": True, "samples": 20}])
def test_where_there_is_nothing_to_prepare_nothing_is_written(tmp_path: Path, choices: dict) -> None:
    federated(data_dir=tmp_path, prepare=True, **choices)
    assert cached(tmp_path) == []


def test_own_frost_textures(tmp_path: Path) -> None:
    """They change frost alone, decide about the file, and are known by what they show, not by their name."""
    folder = tmp_path / "textures"
    folder.mkdir()
    Image.new("RGB", (50, 40), (255, 0, 0)).save(folder / "red.png")
    choices = {"data_dir": tmp_path, "shift": "feature", "source_clients": 40}
    plain = federated(**choices)
    own = federated(**choices, frost_textures=folder, prepare=True, workers=1)
    before, after = pixels(plain), pixels(own)
    corruptions = {client.id: client.corruption.name for client in own.population.source if client.corruption}
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name for name, corruption in corruptions.items() if corruption == "frost"}
    assert changed
    assert own.manifest.config["frost_textures"] == str(folder)
    assert same(pixels(federated(**choices, frost_textures=str(folder))), after)
    Image.new("RGB", (50, 40), (0, 0, 255)).save(folder / "red.png")
    blue = federated(**choices, frost_textures=folder)
    assert blue.manifest.digest != own.manifest.digest
    assert not same(pixels(blue), after)


def test_bad_frost_textures(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=r"frost_textures='.*': it has no images"):
            federated(data_dir=tmp_path, frost_textures=folder)
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"frost_textures=.*bad\.png \("):
        federated(data_dir=tmp_path, frost_textures=tmp_path)


# Nothing half-written


@pytest.mark.parametrize("choices", [{"samples": 100}, {"source_clients": 400}, {"ratio": 1e6}])
def test_too_few_images_are_an_error_before_anything_is_written(tmp_path: Path, choices: dict) -> None:
    with pytest.raises(DataError, match="too few images: "):
        federated(data_dir=tmp_path, manifest=tmp_path / "manifest.json", prepare=True, **choices)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 50, 1000, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, keep: int) -> None:
    federated(data_dir=tmp_path, prepare=True, workers=1)
    path = corrupted_file(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    keep_digest(path, path)
    with pytest.raises(DataError, match=r"\.npy is not a valid npy file .*: delete it"):
        federated(data_dir=tmp_path)


@pytest.mark.parametrize("prepare", [False, True])
def test_one_changed_pixel_is_made_again(
    tmp_path: Path, prepare: bool, caplog: pytest.LogCaptureFixture
) -> None:
    expected = pixels(federated(data_dir=tmp_path, prepare=True, workers=1))
    path = corrupted_file(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[-1000] ^= 1
    path.write_bytes(damaged)
    assert same(pixels(federated(data_dir=tmp_path, prepare=prepare, workers=1)), expected)
    assert "which is damaged or has no digest: its images are computed again" in caplog.text
    assert path.exists() == prepare


def test_a_file_without_its_digest_is_made_again(tmp_path: Path) -> None:
    expected = pixels(federated(data_dir=tmp_path, prepare=True, workers=1))
    path = corrupted_file(tmp_path)
    rows = np.load(path, mmap_mode="r+")
    rows[:] = 77
    rows.flush()
    path.with_name(f"{path.name}.sha256").unlink()
    assert same(pixels(federated(data_dir=tmp_path, prepare=True, workers=1)), expected)
    assert path.with_name(f"{path.name}.sha256").exists()


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    federated(data_dir=tmp_path, prepare=True, workers=1)
    path = corrupted_file(tmp_path)
    np.save(path, np.zeros((3, 28, 28, 3), np.uint8))
    keep_digest(path, path)
    with pytest.raises(
        DataError, match=r"has uint8 \(3, 28, 28, 3\) instead of uint8 \(480, 28, 28, 3\): delete it"
    ):
        federated(data_dir=tmp_path)


SLOW = """
import sys, time
from tests.helpers.small_digits import federated
from ttpfl.data.pixels import Pixels
quick = Pixels.of
def slow(*arguments):
    time.sleep(0.5)
    return quick(*arguments)
Pixels.of = slow
federated(data_dir=sys.argv[1], prepare=True, workers=2)
"""


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the workers")
def test_a_killed_preparation_leaves_nothing_that_is_used_and_nobody_running(tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", SLOW, tmp_path], env=environment())
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")

    def busy() -> bool:
        assert run.poll() is None, "it ended before it could be killed"
        return (
            any(name.endswith(".part") for name in cached(tmp_path))
            and len(children.read_text().split()) == 2
        )

    wait_until(busy)
    workers = [int(child) for child in children.read_text().split()]
    time.sleep(0.7)  # in the middle of it
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert not [name for name in cached(tmp_path) if name.endswith(".npy")]
    wait_until(lambda: not any(map(alive, workers)))
    assert not [name for name in cached(tmp_path) if name.endswith(".npy")]
    expected = pixels(federated(data_dir=tmp_path))  # nothing is found
    assert same(pixels(federated(data_dir=tmp_path, prepare=True, workers=2)), expected)
    assert len([name for name in cached(tmp_path) if name.endswith(".npy")]) == 1


def test_a_failing_preparation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("camera broken")

    monkeypatch.setattr("ttpfl.data.corruptions.corrupt", fail)
    for workers in (1, 2):
        with pytest.raises(RuntimeError, match="camera broken"):
            federated(data_dir=tmp_path, prepare=True, workers=workers)
        assert cached(tmp_path) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk cannot be mounted (as root it can)")
    try:
        with pytest.raises(OSError, match="No space left") as error:
            federated(data_dir=tmp_path, prepare=True, workers=2)
        assert error.value.errno == errno.ENOSPC
        assert cached(tmp_path) == []
        assert len(federated(data_dir=tmp_path).population.source) == CLIENTS["source_clients"]
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)  # the error keeps the file open


# Names, workers


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        DataError, match=r"population option 'shfit'; did you mean 'shift'\? Available: shift, source_cl"
    ):
        federated(shfit="label")
    with pytest.raises(
        DataError, match=r"unknown data set 'digit'; did you mean 'digits'\? Available: arrays"
    ):
        federate("digit")
    with pytest.raises(DataError, match=r"unknown option 'size' of digits. Available: seed"):
        federate("digits", options={"size": 3})


def test_what_a_data_set_suggests_is_taken_unless_said_otherwise() -> None:
    population = federate("digits", shift="none").population
    assert [len(population.source), len(population.target)] == [36, 9]
    population = federate("digits", shift="none", source_clients=5).population
    assert [len(population.source), len(population.target)] == [5, 9]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_in_parallel_keeps_the_order_and_passes_errors_on(workers: int) -> None:
    secret = np.arange(10)  # is not copied to the processes: they are forked

    def work(number: int) -> int:
        if number == 9:
            raise ttpfl.errors.DataError("nine")
        return int(secret[number]) ** 2

    assert in_parallel(work, 7, workers) == [0, 1, 4, 9, 16, 25, 36]
    assert in_parallel(work, 0, workers) == []
    with pytest.raises(DataError, match="nine"):
        in_parallel(work, 10, workers)
    assert cores() >= 1
