"""What privacy and liars cost: accuracy at new clients, with rates learned under each.

    python benchmarks/privacy.py [--seeds 2] [--out privacy.json]

Digits, hybrid shift, a small network with two BatchNorm layers. 60 source clients learn rates by the local
engine, with the code that a real federation uses; 10 target clients then adapt with them. For every seed:

- privacy: no noise, and epsilon = 1, 2, 4, 8 (delta = 1e-4), central and local, as well as clipping alone;
- liars: 10 % and 30 % of the source clients answer with the opposite of their change, ten times as far,
  against every average.

The clip and the refinement's step were chosen with seed 100, which is not among the measured ones.
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

from ttpfl.data import federate
from ttpfl.data.clients import SourceClient
from ttpfl.direction import DirectionCache, entropy
from ttpfl.evaluation import Evaluator
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.federation.accountant import SENSITIVITY, noise_for
from ttpfl.federation.engine import Serial
from ttpfl.federation.jobs import Answer, Job
from ttpfl.federation.rate_work import RatesWork
from ttpfl.federation.roster import Roster
from ttpfl.learning import cross_entropy
from ttpfl.rates import Rates
from ttpfl.twin import Twin

SOURCES, TARGETS = 60, 10
DELTA = 1e-4
LEARN = LearnSettings(rounds=20, batch_size=20, lr=0.3, workers=0)
CLIP = 0.05
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SHARES = (0.1, 0.3)
AVERAGES = ("mean", "clipped mean", "median", "trimmed", "krum")
KEY = b"a study must be repeatable; a federation must not use a known key"


class LyingEngine:
    """The first clients in the roster's order turn their change around and stretch it."""

    def __init__(self, inner: Serial, liars: int, stretch: float = 10.0) -> None:
        self._inner, self._liars, self._stretch = inner, liars, stretch

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[Answer]:
        for answer in self._inner.run(jobs, message):
            if answer.job.client < self._liars:
                answer = answer._replace(vector=message - self._stretch * (answer.vector - message))
            yield answer

    def close(self) -> None:
        self._inner.close()


def small_network() -> nn.Module:
    """Small, so that the study takes minutes: what it asks about does not need a large one."""
    return nn.Sequential(
        *(nn.Conv2d(3, 12, 4, stride=2), nn.BatchNorm2d(12), nn.ReLU()),
        *(nn.Conv2d(12, 24, 4, stride=2), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(24 * 5 * 5, 10)),
    )


class Study:
    """One seed: a population, a global model, and rates under every condition."""

    def __init__(self, seed: int) -> None:
        population, answers, _ = federate(
            "digits",
            shift="hybrid",
            source_clients=SOURCES,
            target_clients=TARGETS,
            validation=0.15,
            prepare=True,
            seed=seed,
        )
        self.clients: list[SourceClient] = list(population.source)
        self.evaluator = Evaluator(population.target, answers)
        torch.manual_seed(seed)
        begin = small_network()
        settings = TrainSettings(rounds=15, seed=seed, validate_every=0)
        self.model = train(begin, self.clients, settings).model
        self.data = {client.id: client.validation() for client in self.clients}
        self.cache = DirectionCache(2**30, keep="first")
        self.seed = seed

    def accuracy(self, **changes: Any) -> dict[str, float]:
        """At the target clients, with rates learned under these settings."""
        liars = changes.pop("liars", 0)
        settings = replace(LEARN, seed=self.seed, **changes)
        begin = Rates.zeros(self.model)
        work = RatesWork(
            Twin(self.model, begin.modules),
            begin,
            Roster(self.data),
            settings,
            self.cache,  # the directions are the same under every condition
            entropy,
            cross_entropy,
            KEY,
        )
        learned = learn(
            self.model,
            self.data,
            settings,
            engine=lambda length, dtype: LyingEngine(Serial(lambda: work, length, dtype), liars),
            noise_key=KEY,
        )
        return self.of(learned.rates)

    def of(self, rates: Rates) -> dict[str, float]:
        return self.evaluator.of_rates(self.model, rates)

    def results(self) -> Iterator[tuple[str, dict[str, float]]]:
        yield "no adaptation", self.of(Rates.zeros(self.model))
        yield "no privacy", self.accuracy()
        yield "clipping alone", self.accuracy(privacy="central", clip=CLIP, noise=0.0, delta=DELTA)
        for privacy in ("central", "local"):
            for epsilon in EPSILONS:
                noise = noise_for(epsilon, LEARN.rounds, DELTA, SENSITIVITY[privacy])
                found = self.accuracy(privacy=privacy, clip=CLIP, noise=noise, delta=DELTA)
                yield f"{privacy}, epsilon {epsilon:g}", found
        for share in SHARES:
            for average in AVERAGES:
                yield f"{share:.0%} liars, {average}", self.accuracy(**_against(average, share))


def _against(average: str, share: float) -> dict[str, Any]:
    liars = {"liars": math.floor(share * SOURCES)}
    if average == "clipped mean":
        return liars | {"privacy": "central", "clip": CLIP, "noise": 0.0}
    return liars | {"average": average, "trim": share}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    table: dict[str, dict[str, list[float]]] = {}
    for seed in range(chosen.seeds):
        for name, found in Study(seed).results():
            for mode, accuracy in found.items():
                table.setdefault(name, {}).setdefault(mode, []).append(100 * accuracy)
            print(f"seed {seed}: {name}: {found}", flush=True)
    print(f"{'':28}{'ATP-batch':>18}{'ATP-online':>18}")
    for name, modes in table.items():
        cells = [f"{statistics.mean(v):.1f} ({min(v):.1f}-{max(v):.1f})" for v in modes.values()]
        print(f"{name:28}" + "".join(f"{cell:>18}" for cell in cells))
    if chosen.out:
        chosen.out.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
