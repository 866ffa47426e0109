"""Learn rates with all defaults in random settings, and test them on new clients.

    python benchmarks/defaults.py --natural FOLDER [--runs 40] [--seed 0] [--out defaults.jsonl]

Every run draws a data set with its shift, a network with or without BatchNorm, a number of source clients
(2 to 240) and a batch size (2 to 200), trains a model for a few rounds, and learns rates for that batch size
with no other setting. New clients were seen by neither. The table shows losses on the source clients and
accuracies at the new clients. FOLDER contains har.npz and ecg.npz.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import ttpfl
from learning.problems import Client, Folders, natural_clients, signal_cnn, small_cnn
from ttpfl.data import federate
from ttpfl.federation import TrainSettings, train

SHIFTS = ("feature", "label", "hybrid", "domain")
NEW, HARM = 10, 0.5
"""Number of new clients, and points of accuracy that count as harm."""


def image_networks() -> dict[str, nn.Module]:
    """Networks for digits, with and without BatchNorm."""
    flat = nn.Flatten()
    return {
        "cnn": small_cnn(),
        "shallow-cnn": ttpfl.models.shallow_cnn(10, image_size=28),
        "cnn without norm": nn.Sequential(
            *(nn.Conv2d(3, 12, 4, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 4, stride=2), nn.ReLU()),
            *(flat, nn.Linear(24 * 5 * 5, 10)),
        ),
        "mlp": nn.Sequential(flat, nn.Linear(3 * 28 * 28, 64), nn.ReLU(), nn.Linear(64, 10)),
        "mlp with layer norm": nn.Sequential(
            *(flat, nn.Linear(3 * 28 * 28, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10))
        ),
        "cnn with group norm": nn.Sequential(
            *(nn.Conv2d(3, 16, 4, stride=2), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(6)),
            *(flat, nn.Linear(16 * 36, 10)),
        ),
    }


def log_uniform(random: np.random.Generator, low: int, high: int) -> int:
    return round(math.exp(random.uniform(math.log(low), math.log(high))))


def drawn(random: np.random.Generator, folders: Folders) -> dict[str, Any]:
    """A random setting: names, the initial model, and clients for training, learning and testing."""
    kind = random.choice(["digits", "digits", "digits", "har", "ecg"])
    batch = log_uniform(random, 2, 200)
    torch.manual_seed(int(random.integers(2**31)))
    if kind == "digits":
        shift, clients = str(random.choice(SHIFTS)), log_uniform(random, 2, 240)
        name, model = list(image_networks().items())[random.integers(6)]
        held_out = str(random.choice(["mnist", "uci", "rendered", "blended"]))
        per_domain = {"held_out": held_out, "clients_per_domain": min(30, max(1, clients // 3))}
        counts = {"source_clients": clients, "target_clients": NEW, "seed": int(random.integers(100))}
        made = federate("digits", shift=shift, **(per_domain if shift == "domain" else counts))
        source, target = made.population.source, list(made.population.target)[:NEW]
        trains, learns = ([tuple(getattr(c, part)()) for c in source] for part in ("train", "validation"))
        tests = [(torch.cat(list(c.stream(1000))), made.target_labels[c.id]) for c in target]
        what = f"digits, {shift}"
    else:
        clients = log_uniform(random, 2, 22 if kind == "har" else 36)
        channels, classes = (3, 6) if kind == "har" else (1, 4)
        name, model = "1-d cnn", signal_cnn(channels, classes)
        parts = natural_clients(folders, kind, clients, NEW, seed=int(random.integers(100)))
        (trains, learns, tests), what = parts, kind
    return {"data": what, "network": name, "model": model, "batch": batch, "parts": (trains, learns, tests)}


def accuracy(model: nn.Module, rates: ttpfl.Rates, clients: list[Client], batch: int, mode: str) -> float:
    """Mean accuracy over clients, in percent."""
    shares = []
    for x, y in clients:
        personal = ttpfl.Personalizer(model, rates, mode=mode)
        logits = torch.cat([personal(part) for part in x.split(batch)])
        shares.append(float((logits.argmax(1) == y).float().mean()))
    return 100 * sum(shares) / len(shares)


def measured(setting: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Train, learn with the defaults, test."""
    trains, learns, tests = setting["parts"]
    training = TrainSettings(rounds=rounds, lr=0.05, validate_every=0, check=False, workers=0)
    model, batch = train(setting["model"], trains, training).model.eval(), setting["batch"]
    rates = ttpfl.learn_rates(model, learns, batch_size=batch)
    checked = rates.learned["checked"]
    return {
        **{name: setting[name] for name in ("data", "network", "batch")},
        "clients": len(learns),
        "rounds": rates.learned["rounds"],
        "source": [checked["plain_loss"], checked["adapted_loss"]],
        "expected": checked["expected"],
        "none": accuracy(model, ttpfl.Rates.zeros(model), tests, batch, "batch"),
        "batch_mode": accuracy(model, rates, tests, batch, "batch"),
        "online": accuracy(model, rates, tests, batch, "online"),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table()
    for head in ("data", "network", "clients", "batch", "rounds", "source loss", "none", "batch", "online"):
        shown.add_column(head, justify="left" if head in ("data", "network") else "right")
    for row in rows:
        before, after = row["source"]
        changes = [f"{row[mode]:.1f} ({row[mode] - row['none']:+.1f})" for mode in ("batch_mode", "online")]
        numbers = [str(row[name]) for name in ("clients", "batch", "rounds")]
        loss = f"{before:.3f} -> {after:.3f}"
        shown.add_row(row["data"], row["network"], *numbers, loss, f"{row['none']:.1f}", *changes)
    return shown


def summary(rows: list[dict[str, Any]]) -> str:
    lines = [f"{len(rows)} runs; source loss higher than without adaptation: "]
    lines[0] += str(sum(row["source"][1] > row["source"][0] for row in rows))
    for mode in ("batch_mode", "online"):
        gains = [row[mode] - row["none"] for row in rows]
        harmed = sum(gain < -HARM for gain in gains)
        lines.append(f"{mode}: mean {np.mean(gains):+.2f}, worst {min(gains):+.2f}, harmed {harmed}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--natural", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("defaults.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    folders = Folders(options.natural, options.natural, Path(tempfile.gettempdir()))
    rows = []
    for number in range(options.runs):
        random = np.random.default_rng([options.seed, number])
        rows.append(measured(drawn(random, folders), options.rounds))
        with options.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(number, rows[-1], flush=True)
    Console(width=140).print(table(rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
