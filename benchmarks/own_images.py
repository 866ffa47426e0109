"""Run the own-images tutorial with several training seeds: accuracy at its new sites, in shuffled streams.

    python benchmarks/own_images.py [--seeds 5] [--foggy]

Uses the tutorial's images and settings.
"""

import argparse
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ttpfl
from ttpfl.evaluation import Evaluator
from ttpfl.federation import LearnSettings, TrainSettings, learn, train

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorials" / "own-images.md"


FOG = "random.uniform(0, 120)"
"""How the page draws the fog of each site."""


def make_pictures(foggy: bool) -> None:
    """Run the page's first code block, which writes the image folders.

    With `foggy`, the new sites are foggier than any source site.
    """
    block = re.search(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.S | re.M)
    assert block is not None
    assert FOG in block[1]
    code = block[1].replace(FOG, f'140 if site.startswith("target") else {FOG}') if foggy else block[1]
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})


def accuracies(seed: int) -> dict[str, float]:
    population, target_labels, _ = ttpfl.data.federate("folder", data_dir="my-sites")
    torch.manual_seed(seed)
    network = ttpfl.models.shallow_cnn(10, image_size=28)
    model = train(network, population.source, TrainSettings(rounds=20, seed=seed)).model.eval()
    rates = learn(model, population.source, LearnSettings(seed=seed)).rates
    evaluator = Evaluator(population.target, target_labels, batch_size=20, seed=seed)
    adapted = evaluator.of_rates(model, rates)
    return {
        "none": evaluator.of_model(model)["accuracy"],
        "batch": adapted["batch"],
        "online": adapted["online"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--foggy", action="store_true", help="new sites foggier than all source sites")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_pictures(arguments.foggy)
        rows = [accuracies(seed) for seed in range(arguments.seeds)]
    table = Table("training seed", *rows[0])
    for seed, row in enumerate(rows):
        table.add_row(str(seed), *(f"{100 * value:.1f}" for value in row.values()))
    columns = [[100 * row[name] for row in rows] for name in rows[0]]
    table.add_row("mean", *(f"{np.mean(column):.1f} ± {np.std(column, ddof=1):.1f}" for column in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
