"""Accuracy without adaptation, with it, and with a guard, where rates and streams fit and where they do not.

    python benchmarks/guard.py --models MODELS --data-dir DATA --natural FOLDER [problem ...]

Rates and guards are learned on source clients alone; the table is about clients that are new to them. For
each problem, one row per kind of rates and stream: mean accuracy in percent of the plain model, the adapted
one and the guarded one, the largest loss of a stream under each, the share of streams with an alarm, and how
far off the estimated accuracy of the plain and the adapted model is on average. "other" rates are those of
another population; "stale" ones were learned before the model was trained for 100 more rounds.
"""

import argparse
import copy
import functools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import ttpfl
from learning.problems import Client, Folders, _trained, natural_clients, signal_cnn
from ttpfl.data import federate
from ttpfl.federation.cross_fitting import without

BATCH, PARTS, MORE_ROUNDS = 20, 3, 100
Batch = tuple[Tensor, Tensor]


class Study(NamedTuple):
    """A model, source clients for rates and guard, and new clients."""

    model: nn.Module
    stale: Callable[[], nn.Module]
    """The same after more training."""
    source: list[Client]
    new: list[Client]
    unseen: list[nn.Module]
    """Models that did not see a third of the clients each, for cross-fitting."""


def images(name: str, shift: str, folders: Folders) -> Study:
    """Images with one kind of shift.

    The digits are too few for all clients: the model may have seen images of the new ones, in other variants.
    """
    if name == "digits":
        choices = {"shift": shift, "samples": 110}
        source = federate("digits", source_clients=80, target_clients=1, seed=3, **choices).population.source
        found = federate("digits", source_clients=4, target_clients=40, seed=11, **choices)
        initial, rounds = functools.partial(ttpfl.models.shallow_cnn, 10, image_size=28), 15
    else:
        seed, rounds = {"hybrid": (2, 28), "feature": (1, 56), "label": (1, 20)}[shift]
        found = federate(name, data_dir=folders.data, shift=shift, seed=seed)
        source, initial = found.population.source, functools.partial(ttpfl.models.shallow_cnn, 10)
    clients = [
        (torch.cat(list(client.stream(1000))), found.target_labels[client.id])
        for client in found.population.target
    ]
    key = f"guard-{name}-{shift}"
    torch.manual_seed(0)
    model = _trained(folders, key, initial(), source, rounds)

    def stale() -> nn.Module:
        return _trained(folders, f"{key}-stale", copy.deepcopy(model), source, MORE_ROUNDS)

    return Study(model, stale, [tuple(one.validation()) for one in source[:60]], clients, [])


def persons(name: str, new: int, rounds: int, network: tuple[int, int], folders: Folders) -> Study:
    """Motion of persons or heartbeats of patients; rates and guard are learned by cross-fitting."""
    training, held_out, clients = natural_clients(folders, name, None, new)

    def model(key: str, clients: list[Client], start: nn.Module | None = None) -> nn.Module:
        torch.manual_seed(0)
        initial = signal_cnn(*network) if start is None else copy.deepcopy(start)
        return _trained(
            folders, f"guard-{key}", initial, clients, rounds if start is None else MORE_ROUNDS, 0.05
        )

    whole = model(name, training)
    unseen = [model(f"{name}-{part}", without(training, part, PARTS)) for part in range(PARTS)]
    return Study(whole, lambda: model(f"{name}-stale", training, whole), held_out, clients, unseen)


STUDIES: dict[str, Callable[[Folders], Study]] = {
    **{
        f"{name}-{shift}": functools.partial(images, name, shift)
        for name in ("digits", "cifar10")
        for shift in ("hybrid", "feature", "label")
    },
    "har": functools.partial(persons, "har", 8, 20, (3, 6)),
    "ecg": functools.partial(persons, "ecg", 12, 10, (1, 4)),
}
OTHER = {"hybrid": "feature", "feature": "label", "label": "hybrid", "har": "ecg", "ecg": "har"}
"""Where rates "of another shift" come from."""


@functools.cache
def study(name: str, folders: Folders) -> Study:
    return STUDIES[name](folders)


@functools.cache
def learned(name: str, folders: Folders, seen: bool = False) -> ttpfl.Rates:
    one, start = study(name, folders), time.perf_counter()
    unseen = [] if seen else one.unseen
    rates = ttpfl.learn_rates(one.model, one.source, seed=0, guard=True, unseen=unseen)
    print(f"{name}: rates and guard after {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return rates


def other(name: str) -> str:
    kind, _, shift = name.partition("-")
    return f"{kind}-{OTHER[shift]}" if shift else OTHER[kind]


def with_same_guard(rates: ttpfl.Rates, values: Tensor) -> ttpfl.Rates:
    """Other rates, which the guard has to judge by their effect: it would recognise and refuse them."""
    return replace(rates.with_values(values), guard=replace(rates.guard, values=""))


def shuffled(values: Tensor) -> Tensor:
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(1))]


RATES: dict[str, Callable[[Tensor], Tensor]] = {
    "fitting": lambda values: values,
    "other": lambda values: values,
    "stale": lambda values: values,
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
    "single": lambda clients: [batches(x[:40], y[:40], 1) for x, y in clients[:6]],
}


def accuracy(personal: ttpfl.Personalizer, stream: list[Batch]) -> float:
    right = sum(int((personal(x).argmax(1) == y).sum()) for x, y in stream)
    return 100 * right / sum(len(y) for _, y in stream)


class Row(NamedTuple):
    """One stream."""

    none: float
    adapted: float
    guarded: float
    alarm: float
    plain_off: float
    adapted_off: float


def row(model: nn.Module, rates: ttpfl.Rates, stream: list[Batch]) -> Row:
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in stream)
    plain = 100 * right / sum(len(y) for _, y in stream)
    adapted = accuracy(ttpfl.Personalizer(model, rates, "online", guard=False), stream)
    personal = ttpfl.Personalizer(model, rates, "online")
    guarded, evidence = accuracy(personal, stream), personal.health.evidence
    if evidence is None or evidence.plain_accuracy is None:  # rates of zero
        return Row(plain, adapted, guarded, 0.0, 0.0, 0.0)
    estimates = (evidence.plain_accuracy.value, evidence.adapted_accuracy.value)
    off = (abs(100 * value - true) for value, true in zip(estimates, (plain, adapted), strict=True))
    return Row(plain, adapted, guarded, float(evidence.alarms > 0), *off)


def cell(model: nn.Module, rates: ttpfl.Rates, streams: list[list[Batch]]) -> dict[str, float]:
    numbers = torch.tensor([row(model, rates, stream) for stream in streams])
    loss = (numbers[:, 1:3] - numbers[:, :1]).amin(0).clamp(max=0).tolist()
    figures = dict(zip(Row._fields, numbers.mean(0).tolist(), strict=True))
    return figures | {"worst_adapted": loss[0], "worst_guarded": loss[1]}


def cells(
    name: str, rates: ttpfl.Rates, kinds: list[str], folders: Folders, clients: list[Client]
) -> Iterator[dict[str, str | float]]:
    one = study(name, folders)
    for stream, make in STREAMS.items():
        for kind in kinds:
            model = one.stale() if kind == "stale" else one.model
            values = learned(other(name), folders).values if kind == "other" else rates.values
            figures = cell(model, with_same_guard(rates, RATES[kind](values)), make(clients))
            yield {"rates": kind, "stream": stream, **figures}


def false_alarms(model: nn.Module, rates: ttpfl.Rates, clients: list[Client]) -> dict[str, float]:
    """At all new clients that gain, with rates that fit and their own streams."""
    rows = [row(model, rates, batches(*client)) for client in clients]
    gaining = [one for one in rows if one.adapted >= one.none]
    return {
        "stated": rates.guard.estimator.false_alarms,
        "measured": sum(one.alarm for one in gaining) / max(1, len(gaining)),
        "clients": len(gaining),
        "gain": sum(one.adapted - one.none for one in rows) / len(rows),
        "kept": sum(one.guarded - one.none for one in rows) / len(rows),
        "worst": min(one.guarded - one.none for one in rows),
    }


def shown(name: str, rows: list[dict[str, str | float]]) -> Table:
    table = Table("rates", "stream", "none", "adapted", "guarded", "worst", "guarded", "alarms", "off", "off")
    for one in rows:
        figures = ("none", "adapted", "guarded", "worst_adapted", "worst_guarded")
        off = (f"{one[key]:.1f}" for key in ("plain_off", "adapted_off"))
        numbers = (f"{one[key]:.1f}" for key in figures)
        table.add_row(str(one["rates"]), str(one["stream"]), *numbers, f"{one['alarm']:.0%}", *off)
    table.title = name
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--natural", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=12, help="at most so many new clients in the table")
    parser.add_argument("--samples", type=int, default=200, help="at most so many samples of each")
    parser.add_argument("--rates", nargs="+", default=list(RATES), help="kinds of rates")
    parser.add_argument("--seen", action="store_true", help="no cross-fitting for persons and patients")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("problems", nargs="*", default=list(STUDIES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("ttpfl").setLevel(logging.ERROR)
    folders, results = Folders(arguments.data_dir, arguments.natural, arguments.models), {}
    for name in arguments.problems:
        rates = learned(name, folders, arguments.seen)
        if rates.guard is None:
            print(f"{name}: rates of zero, since source clients do not show that adaptation helps")
            continue
        clients = [(x[: arguments.samples], y[: arguments.samples]) for x, y in study(name, folders).new]
        alarms, rows = false_alarms(study(name, folders).model, rates, clients), []
        results[name] = {"measured": rates.guard.estimator.measured, "false_alarms": alarms, "cells": rows}
        print(name, alarms)
        for one in cells(name, rates, arguments.rates, folders, clients[: arguments.clients]):
            rows.append(one)
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(results, indent=1))
        Console(width=120).print(shown(name, rows))


if __name__ == "__main__":
    main()
