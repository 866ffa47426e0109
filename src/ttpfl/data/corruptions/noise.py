"""Noise per pixel, independent of the image size."""

import numpy as np

from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.data.corruptions.registry import corruption


@corruption((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))
def gaussian_noise(batch: Batch, sd: float) -> Images:
    """Gaussian noise, as in low light or from a warm sensor."""
    return batch.images + np.float32(sd) * batch.normal(batch.height, batch.width, 3)


@corruption((500,), (250,), (100,), (75,), (50,))
def shot_noise(batch: Batch, photons: float) -> Images:
    """Poisson noise of light that is counted in photons; `photons` is full brightness."""
    means = batch.pixels * (photons / 255)
    counts = [random.poisson(mean) for random, mean in zip(batch.random, means, strict=True)]
    return np.stack(counts).astype(np.float32) / np.float32(photons)


@corruption((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))
def impulse_noise(batch: Batch, fraction: float) -> Images:
    """Salt and pepper: half of this fraction of all values becomes 0, the other half 1."""
    chance = batch.uniform(0, 1, batch.height, batch.width, 3)
    pepper, salt = chance < fraction / 2, chance >= 1 - fraction / 2
    return np.where(pepper, np.float32(0), np.where(salt, np.float32(1), batch.images))


@corruption((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))
def speckle_noise(batch: Batch, sd: float) -> Images:
    """Gaussian noise in proportion to the value."""
    return batch.images * (1 + np.float32(sd) * batch.normal(batch.height, batch.width, 3))
