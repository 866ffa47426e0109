"""Check that the streams behind `results/` were in random order, by rebuilding every population.

    python benchmarks/stream_order.py --data-dir DATA [results/NAME.json ...]

For each client, counts how often a sample has the same class as the previous one, in standard deviations from
random orders of the same samples. Streams sorted by class are tens of deviations off.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ttpfl.data import federate
from ttpfl.data.registry import options as options_of
from ttpfl.evaluation import Evaluator

ROOT = Path(__file__).resolve().parents[1]


def repeats(labels: NDArray[np.int64]) -> int:
    return int((np.diff(labels) == 0).sum())


def deviation(labels: NDArray[np.int64], random: np.random.Generator) -> float:
    usual = [repeats(random.permutation(labels)) for _ in range(300)]
    return float((repeats(labels) - np.mean(usual)) / max(1e-9, np.std(usual)))


def evaluator_of(run: dict[str, Any], data_dir: Path) -> Evaluator:
    """The evaluator of a run, over exactly the clients that its results name."""
    config = run["config"]
    choices = {
        name.removeprefix("data."): value for name, value in config.items() if name.startswith("data.")
    }
    name, stated = choices.pop("name"), choices.pop("options")
    usual = options_of(name)
    options = {key: value for key, value in stated.items() if value != usual.get(key)}
    population, target_labels, manifest = federate(
        name, data_dir=data_dir, options=options, seed=run["seed"], **choices
    )
    assert manifest.digest == run["population"]["digest"], "the clients differ from those of the results"
    return Evaluator(population.target, target_labels, order=config["test.order"], seed=run["seed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("files", nargs="*", type=Path, default=sorted((ROOT / "results").glob("*.json")))
    arguments = parser.parse_args()
    table = Table("result", "case", "order", "clients", "mean", "largest")
    known: dict[str, list[float]] = {}
    for file in arguments.files:
        for run in json.loads(file.read_text())["runs"]:
            if "data.name" not in run.get("config", {}):
                table.add_row(file.stem, str(run["case"]), "no stream: closed form and samples", "", "", "")
                continue
            key = json.dumps([run["population"]["digest"], run["config"]["test.order"], run["seed"]])
            if key not in known:
                evaluator, random = evaluator_of(run, arguments.data_dir), np.random.default_rng(0)
                known[key] = [deviation(evaluator.stream(c)[1], random) for c in evaluator.clients()]
            values = known[key]
            figures = (f"{np.mean(values):+.2f}", f"{max(values, key=abs):+.2f}")
            table.add_row(file.stem, run["case"], run["config"]["test.order"], str(len(values)), *figures)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
