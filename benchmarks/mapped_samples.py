"""Seconds and memory of a million samples of 10,000 clients in a memory-mapped file.

    python benchmarks/mapped_samples.py [--samples 1000000] [--clients 10000]

Prints the processor time to open the population (the second time, with a manifest to verify against, as a run
does), and the memory that opening it and learning rates from some of its clients take besides pages of the
file, which the system can drop at any time.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from ttpfl.data import federate
from ttpfl.federation import LearnSettings, learn
from ttpfl.models import mlp

FEATURES, CLASSES, COHORT = 16, 4, 1000


def own_bytes() -> int:
    """Memory of this process without pages of files."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in one)
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        random, count = np.random.default_rng(0), options.samples
        x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", np.float32, (count, FEATURES))
        for start in range(0, count, 10_000):
            x[start : start + 10_000] = random.normal(size=x[start : start + 10_000].shape)
        np.save(f"{folder}/y.npy", random.integers(CLASSES, size=count))
        np.save(f"{folder}/client.npy", np.arange(count) * options.clients // count)
        size, _ = x.nbytes / 2**20, x._mmap.close()
        print(f"{count:,} samples of {options.clients:,} clients: {size:.0f} MiB")
        federate("waves", data_dir=folder)  # imports what is needed
        before = own_bytes()
        for what in ("opened", "opened and verified"):
            population, start = None, time.process_time()
            population = federate("arrays", data_dir=folder).population
            print(f"{what}: {time.process_time() - start:.2f} s of processor time")
        print(f"memory after opening: {(own_bytes() - before) / 2**20:.0f} MiB")
        settings = LearnSettings(rounds=2, cohort=COHORT, workers=0, direction_cache=0)
        learn(mlp(CLASSES, (FEATURES,)).eval(), population.source, settings)
        print(f"memory after learning from {COHORT} clients: {(own_bytes() - before) / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
