"""The local engine against a plain loop, pfl-research and Flower's simulation; rate learning; memory.

    python benchmarks/federation.py [--rounds 5] [--models cnn resnet18] [--only plain ttpfl pfl flower]

All solve the same problem (`rivals/workload.py`): 240 clients x 160 CIFAR-shaped samples, batch size 20,
one local epoch, from the same initial weights. Each runs in processes, and the rivals in environments, of
its own. Times are medians over rounds after one to warm up.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "rivals"))

import measure  # noqa: E402
from environments import UnavailableError, run  # noqa: E402

CORES = len(os.sched_getaffinity(0))
ENGINES = {  # name: (rival, threads over all processes)
    "plain loop, all threads": ("plain", CORES),
    "ttpfl, 1 worker": ("ttpfl", 1),
    f"ttpfl, {CORES} workers": ("ttpfl", CORES),
    "pfl": ("pfl", CORES),
    "Flower's simulation": ("flower", CORES),
}
GOALS = {"plain loop, all threads": 1.9, "pfl": 1.5, "Flower's simulation": 5.0}


def compare(model: str, rounds: int, only: set[str]) -> None:
    """Time all engines and print them beside the plain loop."""
    print(f"\nFedAvg, {model}: 240 clients x 160 samples, median of {rounds} rounds")
    print(f"{'':26}{'s/round':>9}{'samples/s':>11}{'peak memory':>13}   ours is faster by")
    times: dict[str, float] = {}
    lines = {}
    for name, (rival, threads) in ENGINES.items():
        if rival not in only:
            continue
        try:
            result = run(rival, "--model", model, "--rounds", str(rounds), "--threads", str(threads))
        except UnavailableError as error:
            lines[name] = f"{name:26}{error}"
            continue
        times[name] = statistics.median(result["seconds"])
        memory = result["peak_memory_bytes"] / 2**20
        rate = result["samples_per_second"]
        lines[name] = f"{name:26}{times[name]:9.2f}{rate:11.0f}{memory:9.0f} MiB"
    ours = times.get(f"ttpfl, {CORES} workers")
    for name, line in lines.items():
        goal = f" (goal {GOALS[name]})" if name in GOALS and name in times and ours else ""
        ratio = f"{times[name] / ours:9.2f}x{goal}" if ours and name in times else ""
        print(line + ratio)


def agreement(model: str, only: set[str]) -> None:
    """In float64, where rounding errors cannot hide a different computation."""
    small = ("--model", model, "--double", "--clients", "12", "--rounds", "2")
    print(f"\nlargest difference of weights to the plain loop ({model}, 12 clients, 3 rounds, float64)")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "plain")
        run("plain", *small, "--weights", str(plain))
        for name, (rival, threads) in ENGINES.items():
            if rival == "plain" or rival not in only:
                continue
            weights = Path(folder, "weights")
            try:
                run(rival, *small, "--threads", str(threads), "--weights", str(weights))
                print(f"{name:26}{measure.largest_difference(plain, weights):9.1e}")
            except UnavailableError as error:
                print(f"{name:26}{error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["cnn", "resnet18"])
    rivals = sorted({rival for rival, _ in ENGINES.values()})
    parser.add_argument("--only", nargs="+", choices=rivals, default=rivals)
    options = parser.parse_args()
    only = set(options.only)
    for model in options.models:
        agreement(model, only)
        compare(model, options.rounds, only)
    for script in ("rate_learning.py", "federation_memory.py"):
        subprocess.run([sys.executable, HERE / script], check=True)


if __name__ == "__main__":
    main()
