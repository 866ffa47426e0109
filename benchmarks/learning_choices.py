"""Choices in rate learning, decided on source clients alone: the mode to learn in, and the size of a cohort.

    python benchmarks/learning_choices.py modes --natural FOLDER [--problems har ecg ...]
    python benchmarks/learning_choices.py cohorts --natural FOLDER --data-dir DIR

`modes` learns rates on some source clients and tests them on the others, in batch and in online mode. It
compares three ways to learn: in batch mode; in online mode; and in online mode on longer streams, which are
shuffled copies of a client's data. The stream of a client is short, so online learning is already a mixture
of short prefixes.

`cohorts` learns rates for CIFAR-10 with 15, 30, 60, 120 and all 180 source clients and tests them on the
other 60. The cohort is drawn once and asked in every round.

New clients play no part in either. FOLDER contains har.npz and ecg.npz.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Client, Folders
from ttpfl.core.inputs import client_batches
from ttpfl.core.learning import adapted_tally
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.federation import LearnSettings, learn

MODES = ("batch", "online")
FOLDS, COPIES, BATCH = 4, 4, 20
COHORTS, TESTED, DRAWS = (15, 30, 60, 120, None), 60, 3


class Tested(NamedTuple):
    """Metrics of rates on clients that took no part in learning them."""

    loss: float
    accuracy: float


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("study", choices=["modes", "cohorts"])
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    folders = folders_of(options)
    table = Table(options.study, "rounds", "loss, batch", "accuracy", "loss, online", "accuracy")
    if options.study == "cohorts":
        cohorts(folders, table, options.workers)
    else:
        for name in options.problems:
            modes(name, folders, table, options.workers)
    Console(width=120).print(table)


def modes(name: str, folders: Folders, table: Table, workers: int | None) -> None:
    """Compare the modes by cross-validation over clients."""
    model, clients, _ = PROBLEMS[name](folders)
    folds = FOLDS if len(clients) < 100 else 2
    parts = [
        ([c for n, c in enumerate(clients) if n % folds != fold], clients[fold::folds])
        for fold in range(folds)
    ]
    plain = [tested(model, Rates.zeros(model), others) for _, others in parts]
    add(table, f"{name}: no adaptation", [0], plain)
    ways = {"batch": ("batch", 1), "online": ("online", 1), f"online, {COPIES} copies": ("online", COPIES)}
    for way, (mode, copies) in ways.items():
        rounds, metrics = [], []
        for own, others in parts:
            settings = LearnSettings(batch_size=BATCH, mode=mode, workers=workers)
            rates, history = learn(model, repeated(own, copies), settings)
            rounds.append(len(history))
            metrics.append(tested(model, rates, others))
        add(table, f"{name}: {way}", rounds, metrics)


def cohorts(folders: Folders, table: Table, workers: int | None) -> None:
    """Compare sizes of the cohort, several draws each."""
    model, clients, _ = PROBLEMS["cifar10"](folders)
    own, others = clients[:-TESTED], clients[-TESTED:]
    add(table, "no adaptation", [0], [tested(model, Rates.zeros(model), others)])
    for cohort in COHORTS:
        found = [
            learn(model, own, LearnSettings(batch_size=BATCH, cohort=cohort, seed=seed, workers=workers))
            for seed in range(1 if cohort is None else DRAWS)
        ]
        metrics = [tested(model, rates, others) for rates, _ in found]
        add(table, f"{cohort or len(own)} clients", [len(history) for _, history in found], metrics)


def repeated(clients: Sequence[Client], copies: int) -> list[Client]:
    """Clients with several copies of their data, each in another order."""
    random, longer = torch.Generator().manual_seed(0), []
    for x, y in clients:
        order = torch.cat([torch.randperm(len(y), generator=random) for _ in range(copies)])
        longer.append((x[order], y[order]) if copies > 1 else (x, y))
    return longer


def tested(model: nn.Module, rates: Rates, clients: Iterable[Client]) -> dict[str, Tested]:
    """Loss and accuracy over all samples of other clients, in both modes."""
    twin, metrics = Twin(model, rates.modules), {}
    for mode in MODES:
        total = MetricSums()
        for client in clients:
            total.join(**adapted_tally(twin, rates, client_batches(client, BATCH), mode).sums())
        metrics[mode] = Tested(total.mean_loss, 100 * (total.accuracy or 0.0))
    return metrics


def add(table: Table, name: str, rounds: Sequence[int], metrics: Sequence[dict[str, Tested]]) -> None:
    """Add a row of means, with the standard deviation over draws or folds."""
    cells = [f"{statistics.mean(rounds):.0f}"]
    for mode in MODES:
        for part, digits in (("loss", 3), ("accuracy", 1)):
            values = [getattr(entry[mode], part) for entry in metrics]
            spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.{digits}f}{spread}")
    table.add_row(name, *cells)
    print(name, *cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
