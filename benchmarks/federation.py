"""Compare the local engine with a plain loop, pfl-research and Flower's simulation.

    python benchmarks/federation.py [--rounds 5] [--passes 1] [--clients 240] [--models cnn resnet18]

All engines solve the same problem (`baselines/workload.py`): 240 clients x 160 CIFAR-shaped samples, batch
size 20, one local epoch, the same initial weights. Each engine runs in its own processes, and each baseline
in its own environment. Times are medians over rounds after one warm-up round. Engines run one after the
other; several passes interleave them, so that a temporarily slow machine does not penalise a single engine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "baselines"))

import measure  # noqa: E402
from environments import UnavailableError, run  # noqa: E402

CORES = len(os.sched_getaffinity(0))
OURS = f"ttpfl, {CORES} workers"
ENGINES = {  # name: (baseline, total threads); ours first, so that each line can show its ratio
    OURS: ("ttpfl", CORES),
    "ttpfl, 1 worker": ("ttpfl", 1),
    "plain loop, all threads": ("plain", CORES),
    "pfl": ("pfl", CORES),
    "Flower's simulation": ("flower", CORES),
}
GOALS = {"plain loop, all threads": 1.9, "pfl": 1.5, "Flower's simulation": 5.0}


def compare(model: str, options: argparse.Namespace) -> None:
    """Time all engines and print the speed-up of ttpfl."""
    samples = options.clients * 160
    seconds: dict[str, list[float]] = {}
    for number in range(options.passes):
        print(
            f"\nFedAvg, {model}: {options.clients} clients x 160 samples, "
            f"median of {(number + 1) * options.rounds} rounds"
        )
        print(f"{'':26}{'s/round':>9}{'samples/s':>11}{'peak memory':>13}   speed-up of ttpfl", flush=True)
        for name, (baseline, threads) in ENGINES.items():
            if baseline not in options.only:
                continue
            workload = ("--model", model, "--clients", str(options.clients))
            try:
                result = run(baseline, *workload, "--rounds", str(options.rounds), "--threads", str(threads))
            except UnavailableError as error:
                print(f"{name:26}{error}", flush=True)
                continue
            times = seconds.setdefault(name, [])
            times += result["seconds"]
            median = statistics.median(times)
            memory = result["peak_memory_bytes"] / 2**20
            print(f"{name:26}{median:9.2f}{samples / median:11.0f}{memory:9.0f} MiB", end="")
            if name in GOALS and OURS in seconds:
                print(f"{median / statistics.median(seconds[OURS]):9.2f}x (goal {GOALS[name]})", end="")
            print(flush=True)


def agreement(model: str, only: set[str]) -> None:
    """Compare in float64, where rounding errors cannot hide a different computation."""
    small = ("--model", model, "--double", "--clients", "12", "--rounds", "2")
    print(f"\nlargest difference in weights from the plain loop ({model}, 12 clients, 3 rounds, float64)")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "plain")
        run("plain", *small, "--weights", str(plain))
        for name, (baseline, threads) in ENGINES.items():
            if baseline == "plain" or baseline not in only:
                continue
            weights = Path(folder, "weights")
            try:
                run(baseline, *small, "--threads", str(threads), "--weights", str(weights))
                print(f"{name:26}{measure.largest_difference(plain, weights):9.1e}")
            except UnavailableError as error:
                print(f"{name:26}{error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["cnn", "resnet18"])
    baselines = sorted({baseline for baseline, _ in ENGINES.values()})
    parser.add_argument("--only", nargs="+", choices=baselines, default=baselines)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--clients", type=int, default=240)
    options = parser.parse_args()
    for model in options.models:
        agreement(model, set(options.only))
        compare(model, options)
    for script in ("rate_learning.py", "federation_memory.py"):
        subprocess.run([sys.executable, HERE / script], check=True)


if __name__ == "__main__":
    main()
