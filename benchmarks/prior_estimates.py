"""How to estimate a client's class frequencies for the label prior: mean predictions, or EM.

    python benchmarks/prior_estimates.py --data-dir DIR [--problems cifar10-label ...]

A model is trained on half of the source clients, and rates without a backward pass are learned on their
validation data, once for each way to estimate. The table shows the loss there and accuracy at the other half,
whom neither model nor rates have seen, and at balanced clients: equally many of their samples of each class,
as if only images differed. New clients play no part.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import ttpfl
from learning.problems import Client, Folders, _trained
from ttpfl.core import label_prior
from ttpfl.core.rates import Mode
from ttpfl.data import federate

PROBLEMS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "digits-label": ("digits", 15, {"source_clients": 70, "target_clients": 2, "samples": 110}),
    "digits-hybrid": ("digits", 15, {"source_clients": 70, "target_clients": 2, "samples": 110}),
    "cifar10-label": ("cifar10", 60, {}),
    "cifar10-hybrid": ("cifar10", 60, {}),
    "cifar10-feature": ("cifar10", 60, {}),
}
"""Data set, rounds of training, and population."""
TESTED, BATCH, SEED = 60, 20, 5
WAYS: dict[str, tuple[int | None, Mode]] = {
    "no prior": (None, "batch"),
    "mean prediction": (0, "batch"),
    "EM, 2": (2, "batch"),
    "EM, 5": (5, "batch"),
    "EM, 2, learned online": (2, "online"),
}
"""Number of EM's iterations, and the mode in which rates are learned."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "ttpfl-prior")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    modes = ("batch", "online")
    table = Table(
        "source clients", "estimate", "loss", *modes, *(f"balanced, {mode}" for mode in modes), "rate"
    )
    for name in options.problems:
        model, own, others = prepared(name, Folders(options.data_dir, options.data_dir, options.models))
        parts = [(clients, mode) for clients in (others, list(map(balanced, others))) for mode in modes]
        plain = [accuracy(model, ttpfl.Rates.zeros(model), mode, clients) for clients, mode in parts]
        add(table, name, "no adaptation", "", *plain, "")
        for way in options.ways:
            count, mode = WAYS[way]
            with patch.object(label_prior, "ITERATIONS", count or 0):
                how: dict[str, Any] = {"mode": mode, "budget": 2, "prior": count is not None, "check": False}
                rates = ttpfl.learn_rates(model, own, batch_size=BATCH, **how)
                found = [accuracy(model, rates, mode, clients) for clients, mode in parts]
            rate = "" if count is None else float(rates.values[-1])
            add(table, name, way, rates.learned["checked"]["adapted_loss"], *found, rate)
    Console(width=110).print(table)


def prepared(name: str, folders: Folders) -> tuple[nn.Module, list[Client], list[Client]]:
    """A model, the validation data of the clients it knows, and all data of clients it does not know."""
    data, rounds, choices = PROBLEMS[name]
    shift = name.removeprefix(f"{data}-")
    source = federate(data, data_dir=folders.data, shift=shift, seed=SEED, **choices).population.source
    model = ttpfl.models.shallow_cnn(10, image_size=32 if data == "cifar10" else 28)
    model = _trained(folders, f"half-{name}", model, source[::2], rounds)
    random, others = torch.Generator().manual_seed(0), []
    for client in source[1::2][:TESTED]:
        x, y = (torch.cat(parts) for parts in zip(client.train(), client.validation(), strict=True))
        order = torch.randperm(len(y), generator=random)
        others.append((x[order], y[order]))
    return model, [tuple(client.validation()) for client in source[::2]], others


def balanced(client: Client) -> Client:
    """As many samples of each class as the rarest has."""
    x, y = client
    rank = torch.stack([(y[:index] == label).sum() for index, label in enumerate(y)])
    kept = rank < torch.bincount(y).min()
    return x[kept], y[kept]


def accuracy(model: nn.Module, rates: ttpfl.Rates, mode: str, clients: list[Client]) -> float:
    """Mean over clients, in percent."""
    personal, shares = ttpfl.Personalizer(model, rates, mode), []
    for x, y in clients:
        personal.reset()
        answers = torch.cat([personal(batch).argmax(1) for batch in x.split(BATCH)])
        shares.append(float((answers == y).float().mean()))
    return 100 * sum(shares) / len(shares)


def add(table: Table, *row: Any) -> None:
    cells = [cell if isinstance(cell, str) else f"{float(cell):.2f}" for cell in row]
    table.add_row(*cells)
    print(*cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
