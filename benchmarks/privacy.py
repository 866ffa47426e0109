"""Cost of privacy and of Byzantine clients: accuracy at new clients with rates learned under each condition.

    python benchmarks/privacy.py [--seeds 0 1 2] [--out privacy.jsonl]

Digits, hybrid shift, a small network with two BatchNorm layers. 60 source clients learn rates with the local
engine, which runs the same code as a real federation; 10 target clients then adapt with them. For each seed:

- privacy: no noise; epsilon = 1, 2, 4, 8 (delta = 1e-4), central and local; clipping alone;
- Byzantine clients: 10 % and 30 % of the source clients send the negative of their update, scaled by ten,
  against every aggregation rule;
- the same Byzantine clients against the default learner, to which they send the negative of their slopes,
  scaled by ten, with true losses; and this learner without any.

The clip is the median norm of the clients' first updates; the privacy cost of choosing it that way is not
counted. The learning rate was chosen with seed 100, which is not among the measured seeds.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.direction import entropy
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.learning import cross_entropy
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.data import federate
from ttpfl.data.clients import SourceClient
from ttpfl.evaluation import Evaluator
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.federation.clients.rate_work import RatesWork
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.jobs import ClientResult, Job
from ttpfl.federation.engine.in_process import Serial
from ttpfl.federation.first_rates import first_rates
from ttpfl.federation.privacy.accountant import SENSITIVITY, noise_for

SOURCES, TARGETS = 60, 10
DELTA = 1e-4
LEARN = LearnSettings(rounds=6, batch_size=20, lr=0.15, workers=0)
SEARCH = LearnSettings(batch_size=20, workers=0)
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SHARES = (0.1, 0.3)
AVERAGES = ("mean", "clipped mean", "median", "trimmed", "krum")
OF_SLOPES = tuple(name for name in AVERAGES if name != "clipped mean")
KEY = b"a study must be repeatable; a federation must not use a known key"


class ByzantineEngine:
    """The first clients of the pool send the negative of their update or slopes, scaled up."""

    def __init__(self, inner: Serial, byzantine: int, slopes: bool, scale: float = 10.0) -> None:
        self._inner, self._byzantine, self._slopes, self._scale = inner, byzantine, slopes, scale

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        for result in self._inner.run(jobs, message):
            if result.job.client < self._byzantine:
                origin = torch.zeros_like(message) if self._slopes else message
                result = result._replace(vector=origin - self._scale * (result.vector - origin))
            yield result

    def close(self) -> None:
        self._inner.close()


def small_network() -> nn.Module:
    """A small network, so that the study takes minutes."""
    return nn.Sequential(
        *(nn.Conv2d(3, 12, 4, stride=2), nn.BatchNorm2d(12), nn.ReLU()),
        *(nn.Conv2d(12, 24, 4, stride=2), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(24 * 5 * 5, 10)),
    )


class Study:
    """One seed: a population, a global model, and rates under every condition."""

    def __init__(self, seed: int) -> None:
        population, target_labels, _ = federate(
            "digits",
            shift="hybrid",
            source_clients=SOURCES,
            target_clients=TARGETS,
            validation=0.15,
            prepare=True,
            seed=seed,
        )
        self.clients: list[SourceClient] = list(population.source)
        self.evaluator = Evaluator(population.target, target_labels)
        torch.manual_seed(seed)
        begin = small_network()
        settings = TrainSettings(rounds=15, seed=seed, validate_every=0)
        self.model = train(begin, self.clients, settings).model
        self.data = {client.id: client.validation() for client in self.clients}
        self.cache = DirectionCache(2**30, keep="first")
        self.seed = seed
        self.clip = self._median_update()

    def accuracy(self, byzantine: int = 0, base: LearnSettings = LEARN, **changes: Any) -> float:
        """Accuracy at the target clients, with rates learned under these settings."""
        settings = replace(base, seed=self.seed, clip=self.clip, **changes)
        work = self._work(settings)
        learned = learn(
            self.model,
            self.data,
            settings,
            engine=lambda length, dtype: ByzantineEngine(
                Serial(lambda: work, length, dtype), byzantine, settings.searches
            ),
            noise_key=KEY,
        )
        return self.of(learned.rates)

    def of(self, rates: Rates) -> float:
        return self.evaluator.mean_accuracy(lambda: Personalizer(self.model, rates, mode="online"))

    def _work(self, settings: LearnSettings) -> RatesWork:
        begin, pool = first_rates(self.model, settings, None, None), ClientPool(self.data)
        twin = Twin(self.model, begin.modules)
        # The directions are the same under every condition, so one cache serves all.
        return RatesWork((twin,), begin, pool, settings, self.cache, entropy, cross_entropy, KEY)

    def _median_update(self) -> float:
        begin = Rates.zeros(self.model).values
        engine = Serial(lambda: self._work(replace(LEARN, seed=self.seed)), len(begin))
        jobs = [Job(number, name, 0) for number, name in enumerate(self.data)]
        return statistics.median(float(result.vector.norm()) for result in engine.run(jobs, begin))

    def results(self) -> Iterator[tuple[str, float]]:
        yield "no adaptation", self.of(Rates.zeros(self.model))
        yield "no privacy", self.accuracy()
        yield from self._private("central")
        for share in SHARES:
            for average in AVERAGES:
                yield f"{share:.0%} Byzantine, {average}", self.accuracy(**_against(average, share))
        yield "clipping alone", self.accuracy(privacy="central", noise=0.0)
        yield from self._private("local")
        yield "default learner", self.accuracy(base=SEARCH)
        for share in SHARES:
            for average in OF_SLOPES:
                name = f"default learner, {share:.0%} Byzantine, {average}"
                yield name, self.accuracy(base=SEARCH, **_against(average, share))

    def _private(self, privacy: str) -> Iterator[tuple[str, float]]:
        for epsilon in EPSILONS:
            noise = noise_for(epsilon, LEARN.rounds, DELTA, SENSITIVITY[privacy])
            accuracy = self.accuracy(privacy=privacy, noise=noise, delta=DELTA)
            yield f"{privacy}, epsilon {epsilon:g}", accuracy


def _against(average: str, share: float) -> dict[str, Any]:
    attack = {"byzantine": math.floor(share * SOURCES)}
    if average == "clipped mean":
        return attack | {"privacy": "central", "noise": 0.0}
    return attack | {"average": average, "trim": share}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--out", type=Path, default=Path("privacy.jsonl"))
    chosen = options.parse_args()
    for seed in chosen.seeds:
        for name, accuracy in Study(seed).results():
            with open(chosen.out, "a") as file:
                file.write(json.dumps({"seed": seed, "condition": name, "accuracy": accuracy}) + "\n")
            print(f"seed {seed}: {name}: {accuracy:.4f}", flush=True)
    print_table(chosen.out)


def print_table(path: Path) -> None:
    """Print the mean, minimum and maximum over seeds for every condition in the file."""
    rows: dict[str, dict[int, float]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        rows.setdefault(entry["condition"], {})[entry["seed"]] = 100 * entry["accuracy"]
    print("accuracy of ATP-online at new clients, %: mean over seeds (min to max)")
    for name, seeds in rows.items():
        values = seeds.values()
        print(f"{name:44}{statistics.mean(values):>8.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
