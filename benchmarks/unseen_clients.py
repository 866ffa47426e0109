"""Compare ways to learn rates on clients whose data did not train the model, on persons and patients.

    python benchmarks/unseen_clients.py --data-dir DIR [--names har ecg] [--fold 0] [--out FILE]

The target clients of a fold are left out altogether: its source clients are dealt into three parts, and each
part once plays the new clients. On the others:

- seen: the model is trained on all clients, and the rates are learned on their validation data;
- held back: a third of the clients only learn the rates, with all their data, and do not train the model;
- refit: the same rates, with the model that is trained on all clients;
- cross-fit: three models are trained, each without a third of the clients, and every client measures its
  slopes with the model that has not seen it, on its validation data or on all its data. The rates are used
  with the model that is trained on all clients.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.data import federate
from ttpfl.data.clients import Labelled
from ttpfl.evaluation import Evaluator
from ttpfl.evaluation.evaluator import plain
from ttpfl.evaluation.metrics import figures
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.models import build
from ttpfl.models.build import arguments_for

PARTS = 3  # of the source clients: pseudo-targets in turn, and held back in turn
ROUNDS, MOST = {"har": 20, "ecg": 10}, {"har": None, "ecg": 300}
"""Rounds of training, and the samples that are used of a client."""
METRICS = ("accuracy", "balanced_accuracy", "loss")

Pairs = list[Labelled]


class Split(NamedTuple):
    """Source clients' training and validation data, and the streams of clients that play new ones."""

    training: Pairs
    validation: Pairs
    new: list[tuple[str, list[Tensor], Tensor]]
    network: dict[str, Any]


def splits(name: str, data_dir: Path, fold: int) -> Iterator[Split]:
    """The source clients of a fold, a part of them held out in turn."""
    outer = federate(name, data_dir=data_dir, fold=fold).population
    absent, names = [client.id for client in outer.target], [client.id for client in outer.source]
    for part in range(PARTS):
        playing = names[part::PARTS]
        population, labels, _ = federate(name, data_dir=data_dir, held_out=[*absent, *playing])
        info, most = population.info, MOST[name]
        evaluator, streams = Evaluator(population.target, labels), []
        for number, client in enumerate(population.target):
            if client.id in playing:
                batches, answers, _ = evaluator.stream(number)
                count = None if most is None else most // 20
                streams.append((client.id, batches[:count], torch.from_numpy(answers)[:most]))
        yield Split(
            [_first(client.train(), most and 4 * most // 5) for client in population.source],
            [_first(client.validation(), most and most // 5) for client in population.source],
            streams,
            arguments_for("signal_cnn", len(info.classes), info.image_size, info.shape),
        )


def _first(data: Labelled, most: int | None) -> Labelled:
    return Labelled(data.x[:most], data.y[:most])


def trained(split: Split, clients: Sequence[int], rounds: int) -> nn.Module:
    """A model that was trained on some of the clients, from the same initial weights every time."""
    torch.manual_seed(0)
    settings = TrainSettings(rounds=rounds, lr=0.05, validate_every=0, check=False, workers=0)
    return train(build(**split.network), [split.training[client] for client in clients], settings).model


def ways(split: Split, rounds: int) -> Iterator[tuple[str, nn.Module, Rates | None]]:
    """Every way with its model and rates."""
    everyone = range(len(split.training))
    every = [
        Labelled(*map(torch.cat, zip(*pair, strict=True)))
        for pair in zip(split.training, split.validation, strict=True)
    ]
    full = trained(split, everyone, rounds)
    unseen = [trained(split, [c for c in everyone if c % PARTS != p], rounds) for p in range(PARTS)]
    settings = LearnSettings(workers=0)
    yield "none", full, None
    yield "seen", full, learn(full, split.validation, settings).rates
    held_back = learn(unseen[0], every[::PARTS], settings).rates
    yield "none, two thirds", unseen[0], None
    yield "held back", unseen[0], held_back
    yield "refit", full, held_back
    yield "cross-fit, validation", full, learn(full, split.validation, settings, unseen=unseen).rates
    yield "cross-fit, all data", full, learn(full, every, settings, unseen=unseen).rates


def tested(
    split: Split, model: nn.Module, rates: Rates | None
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """The mode, the client and its figures."""
    for mode in ("batch", "online"):
        for client, batches, labels in split.new:
            predictor = plain(model) if rates is None else Personalizer(model, rates, mode=mode)
            yield mode, client, figures(torch.cat([predictor(batch) for batch in batches]), labels)


def summary(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Means over the clients that played new ones, and how many lost accuracy by adapting."""
    shown = Table("data", "way", "mode", "accuracy", "balanced", "loss", "lost a point", "worst")
    plain_of = {(r["data"], r["client"], r["mode"]): r["accuracy"] for r in rows if r["way"] == "none"}
    for data, way, mode in dict.fromkeys((row["data"], row["way"], row["mode"]) for row in rows):
        own = [row for row in rows if (row["data"], row["way"], row["mode"]) == (data, way, mode)]
        accuracy, balanced, loss = (statistics.fmean(row[name] for row in own) for name in METRICS)
        changes = [row["accuracy"] - plain_of[data, row["client"], mode] for row in own]
        lost = f"{sum(change < -0.01 for change in changes)} of {len(own)}"
        shown.add_row(
            data, way, mode, f"{accuracy:.2%}", f"{balanced:.2%}", f"{loss:.3f}", lost, f"{min(changes):+.1%}"
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=list(ROUNDS), choices=list(ROUNDS))
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("unseen_clients.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = list[dict[str, Any]]()
    for name in options.names:
        for number, split in enumerate(splits(name, options.data_dir, options.fold)):
            for way, model, rates in ways(split, ROUNDS[name]):
                new = [
                    {"data": name, "part": number, "way": way, "mode": mode, "client": client, **found}
                    for mode, client, found in tested(split, model, rates)
                ]
                rows += new
                with options.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in new)
        Console(width=120).print(summary([row for row in rows if row["data"] == name]))


if __name__ == "__main__":
    main()
