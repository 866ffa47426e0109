"""The label prior with few and many samples: batches of all sizes, and accuracy along the stream.

    python benchmarks/prior_samples.py --natural FOLDER --data-dir DIR [--problems har] [--sizes 1 5 20 100]

Rates without a backward pass are learned on half of the source clients for each batch size, with and without
the label prior, and tested on the streams of the other half, then the other way round. New clients play no
part. FOLDER contains har.npz and ecg.npz.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import ttpfl
from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Client, Folders
from ttpfl.federation import LearnSettings, learn

SPANS = {"samples 1-20": slice(20), "21-60": slice(20, 60), "from 61": slice(60, None)}
SEED = 0


class Figures(NamedTuple):
    """Which samples of each held-out client were predicted rightly, in the order of its stream."""

    batch: list[Tensor]
    online: list[Tensor]


def main() -> None:
    parser = study_parser(__doc__, ("digits-demo", "har"))
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 5, 20, 100])
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    folders = folders_of(options)
    table = Table("problem, batch size", "rates", "batch", "online", *(f"online, {span}" for span in SPANS))
    for name in options.problems:
        for size in options.sizes:
            study(name, size, folders, table, options.workers)
    Console(width=120).print(table)


def study(name: str, size: int, folders: Folders, table: Table, workers: int | None) -> None:
    """Learn and test with one batch size, by two-fold cross-validation over clients."""
    model, clients, _ = PROBLEMS[name](folders)
    shuffled = list(streams(clients))
    halves = [(shuffled[0::2], shuffled[1::2]), (shuffled[1::2], shuffled[0::2])]
    plain = [tested(model, ttpfl.Rates.zeros(model), others, size) for _, others in halves]
    add(table, f"{name}, {size}", "none", plain)
    for prior in (False, True):
        settings = LearnSettings(
            batch_size=size, mode="online", budget=2, prior=prior, check=False, workers=workers
        )
        found = [tested(model, learn(model, own, settings)[0], others, size) for own, others in halves]
        add(table, f"{name}, {size}", "with the prior" if prior else "without", found)


def streams(clients: Iterable[Client]) -> Iterator[Client]:
    """The clients' samples in random order."""
    random = torch.Generator().manual_seed(SEED)
    for x, y in clients:
        order = torch.randperm(len(y), generator=random)
        yield x[order], y[order]


def tested(model: nn.Module, rates: ttpfl.Rates, clients: Iterable[Client], size: int) -> Figures:
    """Predict the clients' streams in both modes."""
    figures = Figures([], [])
    for mode, right in figures._asdict().items():
        personal = ttpfl.Personalizer(model, rates, mode)
        for x, y in clients:
            personal.reset()
            answers = [personal(batch).argmax(1) for batch in x.split(size)]
            right.append(torch.cat(answers) == y)
    return figures


def add(table: Table, name: str, rates: str, halves: list[Figures]) -> None:
    """Add a row of accuracies over all samples of both halves."""
    batch, online = ([one for half in halves for one in half[mode]] for mode in (0, 1))
    parts = [batch, online, *([one[span] for one in online] for span in SPANS.values())]
    rights = [torch.cat(part).float() for part in parts]
    cells = [f"{100 * right.mean():.1f}" if len(right) else "-" for right in rights]
    table.add_row(name, rates, *cells)
    print(name, rates, *cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
