"""Real data sets, where they are there."""

import hashlib
from pathlib import Path

import numpy as np

import ttpfl
from tests.helpers.real_data import needed


def test_cifar10(real_data: Path) -> None:
    needed(real_data / "cifar-10-batches-bin")
    images = ttpfl.data.load("cifar10", real_data)
    assert images.x.shape == (60_000, 32, 32, 3)
    assert np.bincount(images.y).tolist() == [6000] * 10
    mean = images.x.mean((0, 1, 2)) / 255
    assert np.abs(mean - images.info.mean).max() < 0.002  # theirs is of the training images
    # The first batch, put back into its official form.
    planes = images.x[:10_000].transpose(0, 3, 1, 2).reshape(10_000, 3072)
    data = np.concatenate([images.y[:10_000, None].astype(np.uint8), planes], 1).tobytes()
    assert hashlib.sha1(data).hexdigest() == "aadd24acce27caa71bf4b10992e9e7b2d74c2540"


def test_digits5(real_data: Path) -> None:
    needed(real_data / "digits5")
    images = ttpfl.data.load("digits5", real_data)
    assert images.x.shape[1:] == (28, 28, 3)
    assert np.bincount(images.domain).min() > 7000
    for domain in range(5):
        assert np.bincount(images.y[images.domain == domain], minlength=10).min() > 300
    brightness = [images.x[images.domain == domain].mean() for domain in range(5)]
    assert brightness[0] == min(brightness)
    gray = [np.ptp(images.x[images.domain == domain], axis=3).max() == 0 for domain in range(5)]
    assert gray == [True, False, True, False, False]


def test_pacs(real_data: Path, tmp_path: Path) -> None:
    needed(real_data / "PACS")
    (tmp_path / "PACS").symlink_to(real_data / "PACS")  # so that the cache is not left behind
    images = ttpfl.data.load("pacs", tmp_path, image_size=16)
    assert np.bincount(images.domain).tolist() == [2048, 2344, 1670, 3929]
    assert len(images) == images.info.samples == 9991
    again = ttpfl.data.load("pacs", tmp_path, image_size=16)
    assert np.array_equal(again.x, images.x)
    saturation = [np.ptp(images.x[images.domain == domain], axis=3).mean() for domain in range(4)]
    assert saturation[3] == min(saturation) < 2  # sketches have no colour
