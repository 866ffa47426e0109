"""Trained models with source clients, for studies of rate learning: images, motion, heartbeats and text.

Each function returns a model and the validation data of its source clients. Models are cached in a folder.
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import ttpfl
from ttpfl.data import federate
from ttpfl.federation import TrainSettings, train
from ttpfl.models.weights import load_backbone

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import small_vit
import text

Client = tuple[Tensor, Tensor]


class Problem(NamedTuple):
    """A trained model, and labelled clients to learn rates on and to test them on."""

    model: nn.Module
    source: list[Client]
    new: list[Client]
    """Clients that neither the model nor the rates have seen."""


class Folders(NamedTuple):
    """Where data sets are, and where trained models are kept."""

    data: Path
    natural: Path
    """Of `har.npz` and `ecg.npz`."""
    models: Path


def small_cnn(channels: int = 3, classes: int = 10, width: int = 12) -> nn.Module:
    """Two convolutions with BatchNorm, for images of any size."""
    return nn.Sequential(
        *(nn.Conv2d(channels, width, 4, stride=2), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 4, stride=2), nn.BatchNorm2d(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(5), nn.Flatten(), nn.Linear(50 * width, classes)),
    )


def signal_cnn(channels: int, classes: int) -> nn.Module:
    """Three 1-D convolutions with BatchNorm."""
    widths, layers = (channels, 32, 64, 64), list[nn.Module]()
    for before, after in pairwise(widths):
        layers += [nn.Conv1d(before, after, 9, padding=4, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
        layers.append(nn.MaxPool1d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, classes))


def cifar10(folders: Folders) -> Problem:
    """CIFAR-10, hybrid shift, shallow CNN, the paper's 240 source clients; 200 rounds of training."""
    return _images(folders, "cifar10", ttpfl.models.shallow_cnn(10), 200, shift="hybrid", seed=1)


def digits_demo(folders: Folders) -> Problem:
    """The demo: digits of three kinds, the fourth held out."""
    model = ttpfl.models.shallow_cnn(10, image_size=28)
    return _images(folders, "digits", model, 20, shift="domain", held_out="blended")


def digits5(folders: Folders) -> Problem:
    """Digits-5 with ResNet-18, MNIST-M held out; few clients, since a pass takes seconds."""
    weights = folders.data / "weights" / "resnet18_imagenet_backbone_fp16.pth"
    model = load_backbone(ttpfl.models.resnet18(10), weights)
    choices = {"held_out": "mnist_m", "clients_per_domain": 6, "samples": 300}
    return _images(folders, "digits5", model, 20, lr=0.01, shift="domain", **choices)


def har(folders: Folders) -> Problem:
    """Acceleration of 30 persons; 22 are source clients."""
    return _natural(folders, "har", signal_cnn(3, 6), new=8, rounds=20)


def ecg(folders: Folders) -> Problem:
    """Heartbeats of 48 patients, at most 400 each; 36 are source clients."""
    return _natural(folders, "ecg", signal_cnn(1, 4), new=12, rounds=10, most=400)


def vit(folders: Folders) -> Problem:
    """The vision transformer of the examples, label shift."""
    choices = {"source_clients": 28, "target_clients": 7, "samples": 120}
    return _images(folders, "digits", small_vit.SmallViT(10), 100, shift="label", **choices)


def texts(folders: Folders) -> Problem:
    """The text classifier of the examples: packages of scipy are source clients."""
    torch.manual_seed(0)
    pairs = text.clients_of("scipy", 100, seed=0)
    model = _trained(folders, "text", text.TextNet(), [first for first, _ in pairs], 20)
    new = [client for pair in text.clients_of("sklearn", 100, seed=1) for client in pair]
    return Problem(model, [second for _, second in pairs], new)


PROBLEMS: dict[str, Callable[[Folders], Problem]] = {
    "digits-demo": digits_demo,
    "har": har,
    "ecg": ecg,
    "vit": vit,
    "text": texts,
    "cifar10": cifar10,
    "digits5": digits5,
}


def _images(
    folders: Folders, name: str, model: nn.Module, rounds: int, lr: float = 0.1, **choices: object
) -> Problem:
    clients = federate(name, data_dir=folders.data, **choices)
    population = clients.population
    key = f"{name}-{type(model).__name__}-{choices.get('shift')}"
    model = _trained(folders, key, model, population.source, rounds, lr)
    new = [
        (torch.cat(list(client.stream(1000))), clients.target_labels[client.id])
        for client in population.target
    ]
    return Problem(model, [tuple(client.validation()) for client in population.source], new)


def _natural(
    folders: Folders, name: str, model: nn.Module, new: int, rounds: int, most: int | None = None
) -> Problem:
    parts = natural_clients(folders, name, None, new, most=most)
    return Problem(_trained(folders, name, model, parts[0], rounds, lr=0.05), *parts[1:])


def natural_clients(
    folders: Folders, name: str, source: int | None, new: int, seed: int = 0, most: int | None = 400
) -> tuple[list[Client], list[Client], list[Client]]:
    """Persons or patients: 70 % of the source clients' data for training, the rest, and new clients."""
    content, random = np.load(folders.natural / f"{name}.npz"), np.random.default_rng(seed)
    x = torch.from_numpy(content["x"].astype(np.float32) * float(content["scale"]))
    y = torch.from_numpy(content["y"].astype(np.int64))
    people = random.permutation(np.unique(content["client"]))
    rows = [random.permutation(np.flatnonzero(content["client"] == one))[:most] for one in people]
    clients = [(x[own], y[own]) for own in rows]
    sources = clients[:-new][:source]
    cuts = [int(0.7 * len(labels)) for _, labels in sources]
    training = [(a[:cut], b[:cut]) for (a, b), cut in zip(sources, cuts, strict=True)]
    held_out = [(a[cut:], b[cut:]) for (a, b), cut in zip(sources, cuts, strict=True)]
    return training, held_out, clients[-new:]


def _trained(
    folders: Folders, key: str, model: nn.Module, clients: object, rounds: int, lr: float = 0.1
) -> nn.Module:
    path = folders.models / f"{key}.safetensors"
    if not path.exists():
        settings = TrainSettings(rounds=rounds, lr=lr, validate_every=0, check=False)
        folders.models.mkdir(parents=True, exist_ok=True)
        save_file(train(model, clients, settings).model.state_dict(), path)
    model.load_state_dict(load_file(path))
    return model.eval()
