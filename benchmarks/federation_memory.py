"""Peak memory of the local engine with many clients that share one set of images.

    python benchmarks/federation_memory.py

Shallow CNN over 60,000 CIFAR-shaped images: 240 and 2,400 clients drawn from the same images with a cohort of
60, and training with all 240 clients in every round. Shared memory is counted once (sum of proportional set
sizes).
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "baselines"))

import measure
import ttpfl
from ttpfl.data.images import Images
from ttpfl.federation import LearnSettings, TrainSettings, learn, train

COHORT, GOAL_MIB, CACHE = 60, 1536, 2**28


def population(clients: int) -> ttpfl.data.Population:
    random = np.random.default_rng(0)
    x = random.integers(256, size=(60_000, 32, 32, 3), dtype=np.uint8)
    y, domain = np.arange(60_000) % 10, np.zeros(60_000, np.int64)
    images = Images(x, y, domain, ttpfl.data.dataset_info("cifar10"))
    with tempfile.TemporaryDirectory() as folder:
        return ttpfl.data.federate(
            images,
            data_dir=folder,
            shift="label",
            source_clients=clients,
            target_clients=clients // 4,
            replacement=True,
        ).population


def one(kind: str, clients: int, cohort: int) -> None:
    """In a separate process, print the peak memory and the seconds per round."""
    sources, model = population(clients).source, ttpfl.models.shallow_cnn(10)
    begin = time.perf_counter()
    with measure.PeakMemory(0.2) as memory:
        if kind == "train":
            train(model, sources, TrainSettings(rounds=2, cohort=cohort, validate_every=0))
        else:
            learn(model, sources, LearnSettings(rounds=2, cohort=cohort, direction_cache=CACHE))
    print(memory.peak / 2**20, (time.perf_counter() - begin) / 2)


def main() -> None:
    if len(sys.argv) == 4:
        one(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return
    print(f"\npeak memory, shallow CNN, 60,000 images, cohort {COHORT} (goal {GOAL_MIB} MiB, within 10 %)")
    for kind in ("train", "learn"):
        (small, fast), (large, slow) = (in_own_process(kind, clients) for clients in (240, 2400))
        print(
            f"{kind}: 240 clients {small:.0f} MiB, 2,400 clients {large:.0f} MiB ({large / small:.3f}x); "
            f"{fast:.2f} and {slow:.2f} s per round"
        )
    everybody, seconds = in_own_process("train", 240, 240)
    print(f"train, all 240 clients in a round: {everybody:.0f} MiB, {seconds:.2f} s per round")


def in_own_process(kind: str, clients: int, cohort: int = COHORT) -> list[float]:
    words = [sys.executable, __file__, kind, str(clients), str(cohort)]
    done = subprocess.run(words, stdout=-1, text=True, check=True)
    return [float(value) for value in done.stdout.split()]


if __name__ == "__main__":
    main()
