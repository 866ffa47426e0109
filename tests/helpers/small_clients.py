"""Small networks and clients for the federation's tests."""

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

CLASSES = 3
FEATURES = 4
Pair = tuple[Tensor, Tensor]


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(FEATURES, CLASSES)


def mlp(seed: int = 0, dropout: float = 0.0) -> nn.Module:
    """With BatchNorm."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(dropout), nn.Linear(6, CLASSES)
    )


def cnn(seed: int = 0) -> nn.Module:
    """Images of 3 x 6 x 6, with BatchNorm."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES)
    )


def pair(size: int, seed: int, shape: tuple[int, ...] = (FEATURES,)) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (size,), generator=generator)
    x = torch.randn(size, *shape, generator=generator) + y.view(-1, *(1 for _ in shape))
    return x, y


def clients(sizes: Iterable[int] = (8, 12, 5, 10), shape: tuple[int, ...] = (FEATURES,)) -> dict[str, Pair]:
    return {f"client-{number}": pair(size, 100 + number, shape) for number, size in enumerate(sizes)}


def same_state(a: nn.Module, b: nn.Module) -> bool:
    """To the bit."""
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    return max(float((left[name].double() - right[name].double()).abs().max()) for name in left)


class Noisy(Dataset[Any]):
    """Augments with everybody's random numbers, and takes its time."""

    def __init__(self, data: Pair, seconds: float = 0.0) -> None:
        self.data, self.seconds = data, seconds

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, index: int) -> Pair:
        if index == 0:
            time.sleep(self.seconds)
        x, y = self.data[0][index], self.data[1][index]
        return x + 0.1 * torch.randn(x.shape) + 0.1 * random.random() + 0.1 * np.random.rand(), y  # noqa: NPY002


class Bad(Dataset[Any]):
    """Data that cannot be read."""

    def __init__(self, size: int = 8) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Pair:
        raise OSError("the disk is broken")


class Site:
    """A client that makes its data when asked, and notes who asked."""

    def __init__(self, name: str, data: Pair, notes: Path, seconds: float = 0.0) -> None:
        self.id, self._data, self._notes, self._seconds = name, data, notes, seconds

    def size(self, part: str) -> int:
        return len(self._data[1])

    def train(self) -> Pair:
        (self._notes / f"{os.getpid()}").touch()
        time.sleep(self._seconds)
        return self._data

    def validation(self) -> Pair:
        return self._data
