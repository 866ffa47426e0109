"""Accuracy against cost: rates of every level of modules, learned and tested on source clients alone.

    python benchmarks/budgets.py --natural FOLDER --data-dir DIR [--problems har ecg ...] [--most N]

Rates are learned on half of the source clients and tested on the other half, then the other way round, with
and without the label prior. New clients play no part. FOLDER contains har.npz and ecg.npz.
"""

from rich.console import Console
from rich.table import Table

from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Folders
from learning_choices import BATCH, add, tested
from ttpfl.core.levels import COSTS
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings, learn


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--most", type=int, help="source clients of a problem; all by default")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    folders = folders_of(options)
    table = Table("problem, budget", "rounds", "loss, batch", "accuracy", "loss, online", "accuracy")
    for name in options.problems:
        curve(name, folders, table, options.most, options.workers)
    Console(width=120).print(table)


def curve(name: str, folders: Folders, table: Table, most: int | None, workers: int | None) -> None:
    """Learn and test every level, by two-fold cross-validation over clients."""
    model, clients, _ = PROBLEMS[name](folders)
    clients = clients[:most]
    halves = [(clients[0::2], clients[1::2]), (clients[1::2], clients[0::2])]
    plain = [tested(model, Rates.zeros(model), others) for _, others in halves]
    add(table, f"{name}: no adaptation", [0], plain)
    for prior in (False, True):
        for budget in COSTS.values():
            settings = LearnSettings(batch_size=BATCH, budget=budget, prior=prior, workers=workers)
            found = [learn(model, own, settings) for own, _ in halves]
            metrics = [
                tested(model, rates, others) for (rates, _), (_, others) in zip(found, halves, strict=True)
            ]
            label = f"{name}: budget {budget:g}{', label prior' if prior else ''}"
            add(table, label, [len(history) for _, history in found], metrics)


if __name__ == "__main__":
    main()
