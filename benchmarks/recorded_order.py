"""Learn rates with batches in random order or in the order of recording, for streams of both kinds.

    python benchmarks/recorded_order.py --data-dir DIR [--folds 0 1 2 3 4]

Persons of `har` did one activity after the other, so a batch in the order of recording has one or two of
six activities. The rates are those of ATP-plus-online, learned by cross-fitting. The table shows the new
persons of all folds: mean accuracy, and the largest loss of a person against no adaptation.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from ttpfl import Personalizer, Rates
from ttpfl.data import federate
from ttpfl.data.clients import SourceClient
from ttpfl.evaluation import Evaluator
from ttpfl.federation import LearnSettings, TrainSettings, learn, train, train_unseen
from ttpfl.models import signal_cnn

ORDERS = {"random": "iid", "as recorded": "recorded"}
TRAIN = TrainSettings(rounds=20, lr=0.05, batch_size=20, validate_every=0, workers=0)
LEARN = LearnSettings(only="forward", prior=True, batch_size=20, workers=0)


def recorded(client: SourceClient) -> SourceClient:
    """The client with its validation data in the order of recording."""
    order = np.argsort(client.validation_ids)
    ids, labels = client.validation_ids[order], client.validation_labels[order]
    return replace(client, validation_ids=ids, validation_labels=labels)


def accuracies(model: nn.Module, rates: Rates | None, evaluator: Evaluator) -> list[float]:
    """Of every new person, in percent."""
    predictors = (
        model if rates is None else Personalizer(model, rates, mode="online") for _ in evaluator.target
    )
    streams = zip(evaluator.streams(), predictors, strict=True)
    with torch.no_grad():
        return [100 * evaluator.judge(one, predictor)[0][0]["accuracy"] for one, predictor in streams]


def measured(fold: int, data_dir: Path) -> dict[tuple[str, str], list[float]]:
    """Accuracies of the new persons of a fold, by how rates were learned and the order of the stream."""
    population, labels, _ = federate("har", data_dir=data_dir, fold=fold, prepare=True)
    torch.manual_seed(0)
    initial = signal_cnn(len(population.info.classes), population.info.shape)
    model = train(initial, population.source, TRAIN).model
    unseen = train_unseen(initial, population.source, TRAIN)
    ways = {"random": population.source, "as recorded": [recorded(client) for client in population.source]}
    rates: dict[str, Rates | None] = {"no adaptation": None}
    rates |= {f"learned {way}": learn(model, data, LEARN, unseen=unseen).rates for way, data in ways.items()}
    evaluators = {name: Evaluator(population.target, labels, order=order) for name, order in ORDERS.items()}
    return {
        (way, order): accuracies(model, one, evaluator)
        for way, one in rates.items()
        for order, evaluator in evaluators.items()
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data-dir", type=Path, required=True)
    options.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    chosen = options.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[str, str], list[float]] = {}
    for fold in chosen.folds:
        for key, values in measured(fold, chosen.data_dir).items():
            found.setdefault(key, []).extend(values)
    table = Table("rates", "stream", "accuracy", "largest loss")
    for (way, order), values in found.items():
        plain = found["no adaptation", order]
        loss = min(after - before for before, after in zip(plain, values, strict=True))
        table.add_row(way, order, f"{np.mean(values):.1f}", f"{loss:+.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
