"""Milliseconds per image of every corruption, on one core.

    python benchmarks/corruptions.py [--images 400] [--side 32]

Each severity is applied to one client's images at a time, as when a population is built. The images are
synthetic: soft shapes with some noise, so that JPEG has something to compress. The estimate is for the
60,000 images of CIFAR-10, each with one of the 15 source corruptions at random.
"""

import argparse
import statistics
import time

import numpy as np

from ttpfl.data.corruptions import SOURCE_CORRUPTIONS, corrupt, frost, names
from ttpfl.data.corruptions.plasma import plasma

CLIENT = 200  # images corrupted at a time
GOAL_SECONDS, GOAL_MS = 120, 6.0


def some_images(count: int, side: int) -> np.ndarray:
    random = np.random.default_rng(0)
    power = 1 << (side - 1).bit_length()
    clouds = plasma(random.uniform(-1, 1, (3 * count, power, power)).astype(np.float32), 1.5)
    images = clouds[:, :side, :side].reshape(count, 3, side, side).transpose(0, 2, 3, 1)
    return (255 * images).astype(np.uint8)


def milliseconds(name: str, severity: int, images: np.ndarray) -> float:
    """Milliseconds per image, in chunks of one client's size."""
    begin = time.perf_counter()
    for first in range(0, len(images), CLIENT):
        part = images[first : first + CLIENT]
        corrupt(part, name, severity, seeds=[(1, first + index) for index in range(len(part))])
    return 1000 * (time.perf_counter() - begin) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=400, help="images per corruption and severity")
    parser.add_argument("--side", type=int, default=32, help="their height and width in pixels")
    options = parser.parse_args()
    images = some_images(options.images, options.side)
    begin = time.perf_counter()
    frost.built_in()
    print(f"drawing the frost texture, once per process: {1000 * (time.perf_counter() - begin):.0f} ms\n")
    print(
        f"{'ms per image, severity':<24}" + "".join(f"{severity:>8}" for severity in range(1, 6)) + "    mean"
    )
    means = {}
    for name in names():
        times = [milliseconds(name, severity, images) for severity in range(1, 6)]
        means[name] = statistics.mean(times)
        print(f"{name:<24}" + "".join(f"{value:8.3f}" for value in [*times, means[name]]), flush=True)
    mean = statistics.mean(means[name] for name in SOURCE_CORRUPTIONS)
    print(f"\nsource corruptions: {mean:.3f} ms per image on average (goal: each below {GOAL_MS})")
    print(f"60,000 images on two processes: {60 * mean / 2:.0f} s (goal: below {GOAL_SECONDS})")


if __name__ == "__main__":
    main()
