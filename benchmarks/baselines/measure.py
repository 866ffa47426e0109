"""Run an engine on the workload and print time and memory as one line of JSON."""

import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from workload import Workload, parser

Train = Callable[[Workload, int, Callable[[], None]], dict[str, Tensor]]


def run(baseline: str, version: str, train: Train, description: str | None) -> None:
    """Measure `train` with the command-line options.

    Args:
        baseline: name of the engine.
        version: its version.
        train: takes the workload, a number of rounds and a function to call after each round;
            returns the final weights.
        description: help text of the script.
    """
    options = parser(description).parse_args()
    if options.rounds < 1:
        raise SystemExit(f"--rounds is {options.rounds}, but must be at least 1")
    workload = Workload(options.model, options.clients, options.samples, options.double)
    torch.set_num_threads(options.threads)
    marks = [time.perf_counter()]
    with PeakMemory() as memory:
        weights = train(workload, 1 + options.rounds, lambda: marks.append(time.perf_counter()))
    # The first round also creates the data and starts processes, so it is not counted.
    seconds = [end - begin for begin, end in pairwise(marks[1:])]
    if len(seconds) != options.rounds:
        raise RuntimeError(f"{baseline} completed {len(seconds)} of {options.rounds} timed rounds")
    if options.weights:
        save_file({name: t.contiguous() for name, t in weights.items()}, options.weights)
    samples = workload.clients * len(workload.client(0)[1])
    result = {
        "baseline": baseline,
        "version": version,
        "model": workload.model,
        "threads": options.threads,
        "seconds": seconds,
        "samples_per_second": samples / statistics.median(seconds),
        "peak_memory_bytes": memory.peak,
        "torch": torch.__version__,
    }
    print(json.dumps(result), flush=True)


def largest_difference(a: Path, b: Path) -> float:
    """Largest absolute difference between two weight files."""
    first, second = load_file(a), load_file(b)
    if first.keys() != second.keys():
        raise ValueError(f"{a} and {b} differ in {sorted(first.keys() ^ second.keys())}")
    return max((t - second[name]).abs().max().item() for name, t in first.items())


class PeakMemory:
    """Peak memory of this process and its descendants, sampled at an interval in seconds.

    Sums proportional set sizes (Linux only), so that shared memory is counted once. Computing them walks all
    pages and takes tens of milliseconds per process; sampling more often would penalise engines with several
    processes.
    """

    def __init__(self, interval: float = 15.0) -> None:
        self.peak = 0
        self.interval = interval
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def watch(self) -> None:
        done = False
        while not done:
            done = self.stop.wait(self.interval)
            self.peak = max(self.peak, sum(map(proportional_size, family(os.getpid()))))


def family(root: int) -> set[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := read(entry / "stat")):
            # The process name may contain anything up to the last bracket; state and parent follow.
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    processes, todo = set(), [root]
    while todo:
        process = todo.pop()
        processes.add(process)
        todo += children.get(process, [])
    return processes


def proportional_size(process: int) -> int:
    """Proportional set size in bytes, 0 for a process that has ended."""
    for line in read(Path(f"/proc/{process}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def read(path: Path) -> str:
    """The text of a file in /proc, empty if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
