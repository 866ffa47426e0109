"""Accuracy without adaptation, with it, and with a guard, where rates and streams fit and where they do not.

    python benchmarks/guard.py --models MODELS --data-dir DATA --natural FOLDER [problem ...]

Rates and guards are learned on source clients alone; the table is about clients that are new to them. For
each problem, one row per kind of rates and stream: mean accuracy in percent of the plain model, the adapted
one and the guarded one, the largest loss of a client under each, the share of clients whose adaptation was
stopped, and how far off the estimated accuracy of the adapted model is on average.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import ttpfl
from learning.problems import PROBLEMS, Client, Folders, Problem, _trained
from ttpfl.data import federate

BATCH = 20
Batch = tuple[Tensor, Tensor]


def digits(shift: str) -> Callable[[Folders], Problem]:
    """Digits with one kind of shift: 80 clients for the model, 40 of them for the rates, and 12 new ones.

    The data set is too small for all: the model may have seen images of the new clients, in other variants.
    """

    def make(folders: Folders) -> Problem:
        choices = {"shift": shift, "samples": 110}
        source = federate("digits", source_clients=80, target_clients=1, seed=3, **choices).population.source
        new = federate("digits", source_clients=4, target_clients=12, seed=11, **choices)
        torch.manual_seed(0)
        model = ttpfl.models.shallow_cnn(10, image_size=28)
        model = _trained(folders, f"study-{shift}", model, source, 15)
        clients = [
            (torch.cat(list(client.stream(1000))), new.target_labels[client.id])
            for client in new.population.target
        ]
        return Problem(model, [tuple(client.validation()) for client in source[:40]], clients)

    return make


KINDS: dict[str, Callable[[Folders], Problem]] = {
    **{f"digits-{shift}": digits(shift) for shift in ("hybrid", "feature", "label")},
    **{name: PROBLEMS[name] for name in ("digits-demo", "har", "ecg", "cifar10")},
}


def shuffled(values: Tensor) -> Tensor:
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(1))]


RATES: dict[str, Callable[[Tensor], Tensor]] = {
    "fitting": lambda values: values,
    "x 3": lambda values: 3 * values,
    "x 0.3": lambda values: 0.3 * values,
    "flipped": lambda values: -values,
    "shuffled": shuffled,
}


def batches(x: Tensor, y: Tensor, size: int = BATCH) -> list[Batch]:
    return list(zip(x.split(size), y.split(size), strict=True))


def merged(clients: list[Client]) -> Iterator[list[Client]]:
    """Groups of four clients."""
    for start in range(0, len(clients) - 3, 4):
        yield clients[start : start + 4]


def in_random_order(clients: list[Client]) -> list[Batch]:
    x, y = (torch.cat(parts) for parts in zip(*clients, strict=True))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return batches(x[order], y[order])


def in_turns(clients: list[Client], length: int = 5) -> list[Batch]:
    """Another client every five batches."""
    streams, mixed = [batches(*client) for client in clients], list[Batch]()
    for start in range(0, max(map(len, streams)), length):
        for stream in streams:
            mixed += stream[start : start + length]
    return mixed


def by_class(x: Tensor, y: Tensor) -> list[Batch]:
    order = torch.argsort(y, stable=True)
    return batches(x[order], y[order])


STREAMS: dict[str, Callable[[list[Client]], list[list[Batch]]]] = {
    "own": lambda clients: [batches(*client) for client in clients],
    "sorted": lambda clients: [by_class(*client) for client in clients],
    "mixed clients": lambda clients: [in_random_order(four) for four in merged(clients)],
    "changing": lambda clients: [in_turns(four) for four in merged(clients)],
    "single": lambda clients: [batches(x[:60], y[:60], 1) for x, y in clients[:6]],
}


def accuracy(personal: ttpfl.Personalizer, stream: list[Batch]) -> float:
    right = sum(int((personal(x).argmax(1) == y).sum()) for x, y in stream)
    return 100 * right / sum(len(y) for _, y in stream)


def cell(model: torch.nn.Module, rates: ttpfl.Rates, streams: list[list[Batch]]) -> dict[str, float]:
    rows = []
    for stream in streams:
        plain = accuracy(ttpfl.Personalizer(model, ttpfl.Rates.zeros(model)), stream)
        adapted = accuracy(ttpfl.Personalizer(model, rates, "online", guard=False), stream)
        guarded = ttpfl.Personalizer(model, rates, "online")
        answered = accuracy(guarded, stream)
        evidence = guarded.health.evidence
        off = abs(100 * evidence.adapted_accuracy.value - adapted)
        rows.append((plain, adapted, answered, float(evidence.alarms > 0), off))
    numbers = torch.tensor(rows)
    names = ("none", "adapted", "guarded", "stopped", "estimate_off")
    figures = dict(zip(names, numbers.mean(0).tolist(), strict=True))
    loss = (numbers[:, 1:3] - numbers[:, :1]).amin(0).clamp(max=0)
    return figures | {"worst_adapted": float(loss[0]), "worst_guarded": float(loss[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--natural", type=Path, required=True)
    parser.add_argument("--source", type=int, default=60, help="at most so many source clients")
    parser.add_argument("--clients", type=int, default=12, help="at most so many new clients")
    parser.add_argument("--samples", type=int, default=200, help="at most so many samples of each")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("problems", nargs="*", default=list(KINDS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folders, results = Folders(arguments.data_dir, arguments.natural, arguments.models), {}
    for name in arguments.problems:
        model, source, new = KINDS[name](folders)
        start = time.perf_counter()
        rates = ttpfl.learn_rates(model, source[: arguments.source], seed=0, guard=True)
        print(f"{name}: rates and guard after {time.perf_counter() - start:.0f} s", file=sys.stderr)
        new = [(x[: arguments.samples], y[: arguments.samples]) for x, y in new[: arguments.clients]]
        table = Table("rates", "stream", "none", "adapted", "guarded", "worst", "guarded", "stopped", "off")
        results[name] = {"measured": rates.guard.estimator.measured, "cells": []}
        results[name]["threshold"] = rates.guard.estimator.threshold
        for stream, make in STREAMS.items():
            for kind, change in RATES.items():
                row = cell(model, rates.with_values(change(rates.values)), make(new))
                results[name]["cells"].append({"rates": kind, "stream": stream, **row})
                figures = (row[key] for key in ("none", "adapted", "guarded"))
                worst = (row["worst_adapted"], row["worst_guarded"])
                table.add_row(
                    *(kind, stream, *(f"{figure:.1f}" for figure in (*figures, *worst))),
                    *(f"{row['stopped']:.0%}", f"{row['estimate_off']:.1f}"),
                )
        table.title = name
        Console(width=110).print(table)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
