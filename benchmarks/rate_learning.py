"""Compare a round of rate learning in the local engine with a direct transcription of the algorithm.

    python benchmarks/rate_learning.py [--clients 60] [--rounds 5]

Shallow CNN, 40 CIFAR-shaped validation samples per client, batch size 20, all clients in every round. The
transcription (`transcription.py`) runs in one process, with all threads and with one. Engine and
transcription are interleaved round by round, after a first round that fills the engine's direction cache.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import transcription
import ttpfl
from ttpfl.federation import Callback, LearnSettings, learn

SAMPLES, BATCH, GOAL = 40, 20, 8.0


class Duel(Callback):
    """Run a round of the transcription after every round of the engine."""

    def __init__(self, model: torch.nn.Module, clients: list, names: list[str]) -> None:
        self.model, self.clients = transcription.with_statistics(model), clients
        self.rates = dict.fromkeys(names, 0.0)
        self.ours: list[float] = []
        self.theirs: dict[int, list[float]] = {threads: [] for threads in {1, torch.get_num_threads()}}

    def on_start(self, info: object, state: object) -> None:
        self.begin = time.perf_counter()

    def on_round(self, state: object, record: object) -> None:
        self.ours.append(time.perf_counter() - self.begin)
        for threads, seconds in self.theirs.items():
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            for batches in self.clients:
                transcription.refine(self.model, self.rates, batches, 0.1)
            seconds.append(time.perf_counter() - begin)
        self.begin = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = ttpfl.models.shallow_cnn(10)
    data = [(torch.randn(SAMPLES, 3, 32, 32), torch.randint(10, (SAMPLES,))) for _ in range(options.clients)]
    batches = [list(zip(x.split(BATCH), y.split(BATCH), strict=True)) for x, y in data]
    duel = Duel(model, batches, list(ttpfl.Rates.zeros(model).names))
    settings = LearnSettings(optimizer="sgd", rounds=1 + options.rounds, batch_size=BATCH)
    learn(model, data, settings, callbacks=[duel])
    ours = statistics.median(duel.ours[1:])
    print(f"\nrate learning, shallow CNN, {options.clients} clients x {SAMPLES} samples")
    print(f"ttpfl: first round {duel.ours[0]:.2f} s, then {ours:.2f} s")
    for threads, seconds in sorted(duel.theirs.items()):
        theirs = statistics.median(seconds[1:])
        print(f"transcription, {threads} thread(s): {theirs:.2f} s, {theirs / ours:.1f}x (goal {GOAL})")


if __name__ == "__main__":
    main()
