"""Signals and tables of made-up persons, in the files that a user would have."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("rest", "walk", "run")


def signals(persons: int = 6, samples: int = 30, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Two channels of 16 values: each class has its frequency, each person an offset and an amplitude."""
    random = np.random.default_rng(seed)
    client = np.repeat(np.arange(persons) + 1, samples)
    y = np.tile(np.repeat(np.arange(3), samples // 3), persons)  # class by class, as recorded
    phase = random.uniform(0, 2 * np.pi, (len(y), 2, 1))
    waves = np.sin(phase + (y[:, None, None] + 1) * np.linspace(0, 6, 16))
    offset, size = random.normal(0, 0.3, (persons, 2, 1)), random.uniform(0.5, 2, (persons, 1, 1))
    x = waves * size[client - 1] + offset[client - 1] + random.normal(0, 0.1, waves.shape)
    return {"x": np.round(x * 1000).astype(np.int16), "y": y, "client": client, "scale": np.array(0.001)}


def write_signals(folder: Path, **changes: int) -> dict[str, NDArray[np.generic]]:
    """`data.npz` with all persons."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {**signals(**changes), "classes": np.array(CLASSES)}
    np.savez(folder / "data.npz", **arrays)
    return arrays


def write_table(path: Path, sites: int = 5, rows: int = 24, unlabelled: int = 0) -> None:
    """A CSV file: site, age, pressure and a label that depends on both; the last sites have no labels."""
    random = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", "age", "pressure", "label"])
        for site in range(sites):
            for age, pressure in zip(random.normal(50, 9, rows), random.normal(120, 15, rows), strict=True):
                ill = age / 9 + pressure / 15 + random.normal() > 50 / 9 + 8
                label = "" if site >= sites - unlabelled else ("ill" if ill else "well")
                writer.writerow([f"site-{site}", f"{age + site:.1f}", f"{pressure:.0f}", label])
