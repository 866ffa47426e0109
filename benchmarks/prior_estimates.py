"""How to estimate a client's class frequencies for the label prior: mean predictions, EM, a confusion matrix.

    python benchmarks/prior_estimates.py --data-dir DIR [--problems cifar10-label ...]

A model is trained on half of the source clients, and rates without a backward pass are learned on their
validation data, once for each way to estimate. The table shows accuracy at the other half, whom neither model
nor rates have seen, and at balanced clients: equally many of their samples of each class, as if only images
differed. New clients play no part.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import ttpfl
from learning.problems import Client, Folders, _trained
from ttpfl.core import running
from ttpfl.core.direction import Direction
from ttpfl.core.label_prior import LABEL_PRIOR, SMOOTHING, prior_direction
from ttpfl.data import federate
from ttpfl.methods.prior import on_simplex

PROBLEMS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "digits-label": ("digits", 15, {"source_clients": 70, "target_clients": 2, "samples": 110}),
    "digits-hybrid": ("digits", 15, {"source_clients": 70, "target_clients": 2, "samples": 110}),
    "cifar10-label": ("cifar10", 60, {}),
    "cifar10-hybrid": ("cifar10", 60, {}),
    "cifar10-feature": ("cifar10", 60, {}),
}
"""Data set, rounds of training, and population."""
TESTED, BATCH, SEED = 60, 20, 5
WAYS = ("no prior", "mean prediction", "EM, 2", "EM, 5", "inverse, 0.03")
"""EM with its number of iterations; the inverse of the confusion matrix with its ridge."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "ttpfl-prior")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    modes, rows = ("batch", "online"), ("source clients", "estimate", "batch", "online")
    table = Table(*rows, "balanced, batch", "balanced, online", "rate")
    for name in options.problems:
        model, own, others = prepared(name, Folders(options.data_dir, options.data_dir, options.models))
        parts = [(clients, mode) for clients in (others, list(map(balanced, others))) for mode in modes]
        plain = [accuracy(model, ttpfl.Rates.zeros(model), mode, clients) for clients, mode in parts]
        add(table, name, "no adaptation", *plain, 0.0)
        for way in options.ways:
            with estimating(way, partial(confusion, model, own)):
                prior = way != "no prior"
                rates = ttpfl.learn_rates(model, own, batch_size=BATCH, budget=2, prior=prior, check=False)
                found = [accuracy(model, rates, mode, clients) for clients, mode in parts]
            add(table, name, way, *found, rates.by_module().get(LABEL_PRIOR, torch.zeros(())))
    Console(width=100).print(table)


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


@contextmanager
def estimating(way: str, count: Any) -> Iterator[None]:
    """Replace how a client's frequencies are estimated."""
    kind, _, number = way.partition(", ")
    add, direction = running.RunningDirection.add, running.prior_direction
    if kind == "EM":
        add = partialmethod(with_em, add, int(number))
    if kind == "inverse":
        direction = partial(inverted, ridge_inverse(count(), float(number)))
    with (
        patch.object(running.RunningDirection, "add", add),
        patch.object(running, "prior_direction", direction),
    ):
        yield


def with_em(self: running.RunningDirection, add: Any, iterations: int, direction: Direction) -> None:
    """Add a batch whose predictions are corrected for its own class frequencies."""
    if any(self._assumed) and LABEL_PRIOR in direction:
        part = direction[LABEL_PRIOR]
        rows = part.value.double()
        likely = rows
        for _ in range(iterations):
            likely = rows * prior_direction(likely.sum(0), self._assumed).exp()
            likely = likely / likely.sum(1, keepdim=True)
        direction = {**direction, LABEL_PRIOR: part._replace(value=likely)}
    add(self, direction)


def confusion(model: nn.Module, clients: list[Client]) -> Tensor:
    """Mean predictions of each class's samples, in columns."""
    total = torch.zeros(10, 10, dtype=torch.float64)
    with torch.no_grad():
        for x, y in clients:
            total += model(x).double().softmax(1).T @ torch.nn.functional.one_hot(y, 10).double()
    return total / total.sum(0)


def ridge_inverse(matrix: Tensor, ridge: float) -> Tensor:
    u, size, v = torch.linalg.svd(matrix)
    return v.T @ torch.diag(size / (size.square() + ridge**2)) @ u.T


def inverted(inverse: Tensor, counts: Tensor, assumed: tuple[float, ...]) -> Tensor:
    """As `prior_direction`, for the frequencies that explain the mean prediction."""
    before = torch.tensor(assumed, dtype=torch.float64)
    base = on_simplex(inverse @ (before / before.sum()))
    own = on_simplex(inverse @ (counts / counts.sum()))
    after = (counts.sum() * own + before.sum() * base) / (counts.sum() + before.sum())
    return ((after + SMOOTHING) / (base + SMOOTHING)).log().float()


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
