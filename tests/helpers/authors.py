"""Figures that the ATP authors' implementation computed, and the network and clients that it was given.

The figures are stored (`authors_figures/README.md` says what each one is). The weights and images are random
numbers: they are drawn again here, bit for bit, which a hash makes sure of.
"""

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import ttpfl
from ttpfl.methods import Method, SourceInfo

FILE = Path(__file__).parents[1] / "authors_figures" / "figures.npz"
# SHA-256 of the weights, images and labels.
MADE_UP = "9f27bb17d3b76626e6d15e55e1df13b0fbb2f9492c2b4742ef541429dc4caceb"
CLIENTS, SAMPLES, CLASSES, BATCH_SIZE = 3, 60, 10, 20


@cache
def figures() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return {name: file[name] for name in file.files}


def figure(name: str) -> Tensor:
    return torch.from_numpy(figures()[name].copy())


@cache
def made_up() -> tuple[dict[str, np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The network's weights, and every client's images and labels."""
    random = np.random.default_rng(int(figures()["seed"]))
    shapes = {name: value.shape for name, value in ttpfl.models.shallow_cnn(CLASSES).state_dict().items()}
    weights = {name: _drawn(random, name, shapes[name]) for name in sorted(shapes)}
    normal = [random.standard_normal((SAMPLES, 3, 32, 32)) for _ in range(CLIENTS)]
    labels = [random.integers(0, CLASSES, SAMPLES) for _ in range(CLIENTS)]
    images = [(x * (0.8 + 0.3 * n) + 0.3 * n).astype(np.float32) for n, x in enumerate(normal)]
    found = hashlib.sha256(b"".join(a.tobytes() for a in (*weights.values(), *images, *labels))).hexdigest()
    if found != MADE_UP:
        raise AssertionError(
            f"numpy {np.__version__} draws other random numbers than those that {FILE.name} was computed "
            "with: install the version of numpy that constraints.txt names"
        )
    return weights, images, labels


def _drawn(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """One tensor of the network, as its kind needs it."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if name.endswith("running_var"):
        return random.uniform(0.7, 1.3, shape).astype(np.float32)
    normal = random.standard_normal(shape)
    if len(shape) > 1:  # the last layer is small, so that predictions are not all certain
        variance = 0.3 if name == "linear5.weight" else 1.0
        return (normal * np.sqrt(variance / np.prod(shape[1:]))).astype(np.float32)
    if name.endswith("running_mean"):
        return (0.2 * normal).astype(np.float32)
    return (name.endswith("weight") + 0.1 * normal).astype(np.float32)


def model() -> nn.Module:
    model = ttpfl.models.shallow_cnn(CLASSES)
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in made_up()[0].items()})
    return model.eval()


def client(number: int) -> tuple[Tensor, Tensor]:
    _, images, labels = made_up()
    return torch.from_numpy(images[number].copy()), torch.from_numpy(labels[number].copy())


def batches(number: int) -> list[tuple[Tensor, Tensor]]:
    images, labels = client(number)
    return list(zip(images.split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True))


def answers(method: Method, source_info: SourceInfo | None = None) -> Tensor:
    """What a method says of client 0, which the authors gave to every method."""
    adapter = method.adapter(model(), source_info or SourceInfo())
    return torch.cat([adapter(x) for x, _ in batches(0)])


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest of their numbers."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
