"""Compare the trust-region search for rates with the paper's SGD at its best learning rate of five.

    python benchmarks/learner.py --natural FOLDER [--data-dir DIR] [--problems har ecg ...] [--out FILE]

For every problem: the source loss without adaptation; the loss that SGD reaches in its full number of rounds,
with the learning rate that reaches the lowest (chosen with hindsight; for expensive problems on fewer rounds,
see `TRIALS`); and the rounds and passes that the search needs to reach the same loss. A *pass* is one client
going once through its validation data. Both learn rates for the same modules, without the label prior. Losses
are means over all source clients after adaptation to each batch; neither result is checked (`check=False`).
FOLDER contains har.npz and ecg.npz.
"""

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Problem
from ttpfl.core.inputs import client_batches
from ttpfl.core.learning import adapted_tally
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.federation import LearnSettings, learn

LEARNING_RATES = (0.004, 0.02, 0.1, 0.5, 2.5)
SGD = {"cifar10": (400, 60), "digits-demo": (50, None), "digits5": (40, None)}
"""Full number of rounds of SGD, and its cohort; others have 200 rounds with all clients."""
TRIALS = {"cifar10": 20, "digits5": 5, "ecg": 40, "text": 40, "vit": 20}
"""Rounds after which the learning rate is chosen, where the full number takes too long."""


def main() -> None:
    parser = study_parser(__doc__, list(PROBLEMS))
    parser.add_argument("--out", type=Path, default=Path("learner.jsonl"))
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    folders = folders_of(options)
    rows = []
    for name in options.problems:
        rows.append(measured(name, PROBLEMS[name](folders), options.workers))
        with options.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        Console(width=150).print(table(rows))


def measured(name: str, problem: Problem, workers: int | None) -> dict[str, Any]:
    """The search, and SGD at its best learning rate."""
    clients, (rounds, cohort) = problem.source, SGD.get(name, (200, None))
    begin = time.perf_counter()
    found = learn(problem.model, clients, LearnSettings(check=False, workers=workers))
    seconds = time.perf_counter() - begin
    checked = found.rates.learned["checked"]
    losses = [record["validation_loss"] for record in found.history]

    def sgd(lr: float, rounds: int) -> float:
        settings = LearnSettings(
            optimizer="sgd", lr=lr, rounds=rounds, cohort=cohort, check=False, workers=workers
        )
        try:
            return loss_of(problem, learn(problem.model, clients, settings).rates)
        except Exception as error:  # it diverged: all clients failed
            print(f"{name}, lr {lr}: {error!s:.100}", flush=True)
            return math.inf

    trial = TRIALS.get(name, rounds)
    tried = {lr: sgd(lr, trial) for lr in LEARNING_RATES}
    best = min(tried, key=lambda lr: tried[lr])
    begin = time.perf_counter()
    reached = sgd(best, rounds) if trial < rounds else tried[best]
    first = next((number for number, loss in enumerate(losses, 1) if loss <= reached), None)
    passes = rounds * (cohort or len(clients))
    return {
        "problem": name,
        "clients": len(clients),
        "rates": len(found.rates.values),
        "plain": checked["plain_loss"],
        "sgd": {"loss": reached, "lr": best, "rounds": rounds, "passes": passes, "tried": tried},
        "search": {
            "loss": checked["adapted_loss"],
            "rounds": len(losses),
            "passes": len(losses) * len(clients),
            "first": first,
            "stopped": checked["stopped"],
            "expected": checked["expected"],
            "losses": losses,
            "seconds": seconds,
        },
    }


def loss_of(problem: Problem, rates: Rates) -> float:
    """Mean loss of the source clients after adaptation."""
    twin = Twin(problem.model, rates.modules)
    each = [adapted_tally(twin, rates, client_batches(client, 20), "batch") for client in problem.source]
    mean = statistics.fmean(sums.mean_loss for sums in each)
    return mean if math.isfinite(mean) else math.inf


def table(rows: list[dict[str, Any]]) -> Table:
    """One line per problem."""
    shown = Table()
    heads = ("problem", "clients", "rates", "no adaptation", "SGD's best", "lr", "rounds", "search")
    for head in (*heads, "rounds", "rounds to SGD's", "fewer rounds", "fewer passes"):
        shown.add_column(head, justify="left" if head == "problem" else "right")
    for row in rows:
        sgd, search = row["sgd"], row["search"]
        first = search["first"]
        cells = [row["problem"], str(row["clients"]), str(row["rates"]), f"{row['plain']:.4f}"]
        cells += [f"{sgd['loss']:.4f}", f"{sgd['lr']:g}", str(sgd["rounds"])]
        cells += [f"{search['loss']:.4f}", str(search["rounds"]), str(first or "not")]
        if first:
            cells += [f"{sgd['rounds'] / first:.0f}x", f"{sgd['passes'] / (first * row['clients']):.1f}x"]
        shown.add_row(*cells)
    return shown


if __name__ == "__main__":
    main()
