"""Accuracy at new clients while a global model is trained: CIFAR-10, hybrid shift, shallow CNN.

    python benchmarks/accuracy.py DATA_DIR [--seeds 0 1] [--all-images] [--run-dir runs/accuracy]

240 source clients train on 160 images each (200 with --all-images, which includes the 40 held out for rates).
60 target clients are evaluated after 10, 20 and 40 rounds. If interrupted, rerun the command to resume.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ttpfl.data import federate
from ttpfl.data.clients import SourceClient
from ttpfl.evaluation import Evaluator
from ttpfl.federation import TrainSettings, train
from ttpfl.models import shallow_cnn

REFERENCE = {10: 40.4, 20: 46.8, 40: 52.4}
"""Accuracy of a plain loop in the same setting, in percent."""


def with_all_images(client: SourceClient) -> SourceClient:
    """The same client, training on its held-out images as well."""
    return replace(
        client,
        train_ids=np.concatenate([client.train_ids, client.validation_ids]),
        train_labels=np.concatenate([client.train_labels, client.validation_labels]),
    )


def accuracies(data_dir: Path, seed: int, all_images: bool, run_dir: Path) -> dict[int, float]:
    """Accuracy at target clients in percent, by round."""
    population, target_labels, _ = federate(
        "cifar10", data_dir=data_dir, shift="hybrid", seed=seed, prepare=True
    )
    source = [with_all_images(client) for client in population.source] if all_images else population.source
    torch.manual_seed(seed)
    settings = TrainSettings(rounds=40, lr=0.1, batch_size=20, eval_every=10, validate_every=0, seed=seed)
    trained = train(
        shallow_cnn(10),
        source,
        settings,
        run_dir=run_dir / f"seed-{seed}{'-all' * all_images}",
        resume=True,
        evaluate=Evaluator(population.target, target_labels).of_model,
    )
    return {
        record["round"] + 1: 100 * record["target"]["accuracy"]
        for record in trained.history
        if record["round"] + 1 in REFERENCE and "target" in record
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--all-images", action="store_true")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/accuracy"))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        by_round = accuracies(arguments.data_dir, seed, arguments.all_images, arguments.run_dir)
        for rounds, accuracy in by_round.items():
            print(f"seed {seed}, {rounds} rounds: {accuracy:.1f} % ({accuracy - REFERENCE[rounds]:+.1f})")


if __name__ == "__main__":
    main()
