"""Seconds and memory of populations over CIFAR-10: 300 clients and 100,000 clients.

    python benchmarks/data.py [--data-dir DIRECTORY] [--repetitions 20] [--skip-prepare]

Uses real CIFAR-10 from DIRECTORY (default: TTPFL_DATA) if it is there, else synthetic images of the same
shape. All output goes to a temporary directory. The measurements are interleaved, so that a noisy machine
affects all of them equally.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from core import peak_bytes, reset_peak
from corruptions import some_images
from ttpfl.data import Images, Population, dataset_info, federate, load
from ttpfl.errors import DataMissingError

COHORT = 60
DRAWN = {"shift": "label", "replacement": True}
SIZES = {
    "300": {"source_clients": 240, "target_clients": 60},
    "100,000": {"source_clients": 80_000, "target_clients": 20_000},
}
BUILD_GOAL, PREPARE_GOAL, COHORT_GOAL = 10, 120, 1.2


def cifar10(data_dir: str | None) -> tuple[Images, str]:
    try:
        return load("cifar10", data_dir), "real CIFAR-10"
    except DataMissingError:
        known = dataset_info("cifar10")
        x = np.tile(some_images(2000, 32), (30, 1, 1, 1))
        labels = np.random.default_rng(0).permutation(np.arange(60_000) % 10)
        return Images(x, labels, np.zeros_like(labels), known), "synthetic images in the shape of CIFAR-10"


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = job()
    return time.perf_counter() - begin, result


def verdict(value: float, goal: float) -> str:
    return f"below {goal}: {'ok' if value < goal else 'MISSED'}"


def build(images: Images, folder: str) -> dict[str, Population]:
    """Seconds to build each population, first without and then with a manifest to verify against."""
    built = {}
    kinds: dict[str, dict[str, Any]] = {
        "300 clients, hybrid, dealt out": {**SIZES["300"], "shift": "hybrid"},
        "300 clients, label, dealt out": {**SIZES["300"], "shift": "label"},
        "300 clients, label, with replacement": {**SIZES["300"], **DRAWN},
        "100,000 clients, label, with replacement": {**SIZES["100,000"], **DRAWN},
    }
    for name, choices in kinds.items():
        seconds, made = timed(lambda choices=choices: federate(images, data_dir=folder, **choices))
        again, _ = timed(lambda choices=choices: federate(images, data_dir=folder, **choices))
        print(f"  {name:42} {seconds:6.2f} s, rebuilt and verified {again:6.2f} s", end="")
        print(f" ({verdict(max(seconds, again), BUILD_GOAL)})")
        built[name] = made.population
    return built


def cohorts(populations: dict[str, Population], repetitions: int) -> None:
    """Median seconds to load the training data of random source clients as tensors, interleaved."""
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in populations}
    for turn in range(repetitions + 2):
        for name, population in populations.items():
            chosen = random.choice(len(population.source), COHORT, replace=False).tolist()
            seconds, _ = timed(
                lambda population=population, chosen=chosen: [population.source[n].train() for n in chosen]
            )
            if turn >= 2:  # two warm-up rounds
                times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"  {name:42} {1000 * median:6.1f} ms")
    many = medians["100,000 clients, label, with replacement"]
    ratio = many / medians["300 clients, label, with replacement"]
    print(f"  100,000 clients vs. 300, both with replacement: {ratio:.2f}x ({verdict(ratio, COHORT_GOAL)})")
    ratio = many / medians["300 clients, label, dealt out"]
    print(f"  100,000 clients vs. 300 dealt out without replacement: {ratio:.2f}x")


def prepare(images: Images, folder: str) -> None:
    seconds, _ = timed(lambda: federate(images, data_dir=folder, shift="hybrid", prepare=True, workers=2))
    (path,) = Path(folder).glob("cache/*corrupted*.npy")
    print(f"  {len(images):,} images on 2 processes, {path.stat().st_size / 2**20:.0f} MiB written:", end="")
    print(f" {seconds:.0f} s ({verdict(seconds, PREPARE_GOAL)})")
    made = federate(images, data_dir=folder, shift="hybrid").population
    seconds, _ = timed(lambda: [client.train() for client in made.source[:COHORT]])
    print(f"  a cohort of {COHORT} from that file: {1000 * seconds:.1f} ms")


def memory(data_dir: str | None, size: str) -> None:
    """In a child process, measure the memory of a population and one cohort, besides the images."""
    images, _ = cifar10(data_dir)
    before = reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        made = federate(images, data_dir=folder, **SIZES[size], **DRAWN)
        for client in made.population.source[:COHORT]:
            client.train()
    used = peak_bytes() - before
    print(
        f"  {size + ' clients':42} {used / 2**20:6.1f} MiB besides the images' {images.x.nbytes / 2**20:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", help="where cifar-10-batches-bin is")
    parser.add_argument("--repetitions", type=int, default=20, help="cohorts of each population")
    parser.add_argument("--skip-prepare", action="store_true", help="do not corrupt all images")
    parser.add_argument("--memory-of", choices=list(SIZES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        return memory(options.data_dir, options.memory_of)
    images, what = cifar10(options.data_dir)
    print(f"{what}: {len(images):,} images")
    with tempfile.TemporaryDirectory() as folder:
        print("building a population, manifest included")
        built = build(images, folder)
        print(f"loading a cohort of {COHORT}: 160 training images each, as tensors")
        cohorts({name: made for name, made in built.items() if "label" in name}, options.repetitions)
        if not options.skip_prepare:
            print("corrupting all images (hybrid shift)")
            prepare(images, folder)
    print("peak memory, with replacement", flush=True)
    data_dir = [] if options.data_dir is None else ["--data-dir", options.data_dir]
    for size in SIZES:
        subprocess.run([sys.executable, __file__, *data_dir, "--memory-of", size], check=True)


if __name__ == "__main__":
    main()
