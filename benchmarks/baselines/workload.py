"""The problem that every engine solves: the same FedAvg computation over synthetic clients.

All clients take part in every round. Each runs one epoch of plain SGD over its batches in their natural
order, starting from the global weights. Then all floating-point state, including BatchNorm's running
statistics, is averaged with weights proportional to the clients' sample counts. `num_batches_tracked` is
not changed.
"""

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.models import resnet18, shallow_cnn

SEED, CLASSES, BATCH = 0, 10, 20
NETWORKS = {"cnn": shallow_cnn, "resnet18": resnet18}
LEARNING_RATES = {"cnn": 0.1, "resnet18": 0.01}


@dataclass(frozen=True)
class Workload:
    """A network and the clients to train it on.

    In float32, a rounding error that flips one ReLU or maximum grows a thousandfold in a few rounds: even one
    engine gives different results with another number of threads. Use float64 (`double`) to check that two
    engines compute the same.
    """

    model: str
    clients: int
    samples: int
    double: bool = False

    @property
    def learning_rate(self) -> float:
        return LEARNING_RATES[self.model]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.double else torch.float32

    def network(self) -> nn.Module:
        """The network with its initial weights, in training mode."""
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            return NETWORKS[self.model](num_classes=CLASSES).to(self.dtype).train()

    def client(self, index: int) -> tuple[Tensor, Tensor]:
        """Normalised images and labels of one client, in whole batches.

        Each class has a smooth pattern under noise, so that there is something to learn.
        """
        samples = self.samples - self.samples % BATCH
        random = np.random.default_rng([SEED, index])
        labels = torch.from_numpy(random.integers(CLASSES, size=samples))
        noise = torch.from_numpy(random.integers(256, size=(samples, 3, 32, 32), dtype=np.uint8))
        pixels = noise // 2 + class_patterns()[labels] // 2
        return pixels.to(self.dtype).div_(255).sub_(0.5).div_(0.25), labels


@cache
def class_patterns() -> Tensor:
    """One smooth image per class, as bytes."""
    coarse = np.random.default_rng(SEED).integers(256, size=(CLASSES, 3, 8, 8)).astype(np.float32)
    return F.interpolate(torch.from_numpy(coarse), size=32, mode="bilinear").to(torch.uint8)


def train_epoch(network: nn.Module, images: Tensor, labels: Tensor, learning_rate: float) -> None:
    """Train one client, for engines that leave this to the user."""
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    for x, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()


def averaged_state(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that FedAvg averages, sharing memory with the network."""
    return {name: t for name, t in network.state_dict().items() if t.is_floating_point()}


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all engines share."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", choices=NETWORKS, default="cnn")
    options.add_argument("--clients", type=int, default=240)
    options.add_argument("--samples", type=int, default=160, help="per client")
    options.add_argument("--rounds", type=int, default=5, help="timed rounds, after one warm-up round")
    options.add_argument("--double", action="store_true", help="use float64, to check that engines agree")
    options.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="total threads over all processes"
    )
    options.add_argument("--weights", type=Path, help="safetensors file for the final weights")
    return options
