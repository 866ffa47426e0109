"""The paper's toy example, in which the best rate is negative.

Two classes of numbers, around -1 and +1, are equally frequent in training. The classifier is one BatchNorm
layer and predicts class +1 where its output is positive. At a new client, five of six samples have class +1.
The running mean would follow them up to 2/3, as if the numbers had shifted. But only the class frequencies
have changed, which requires a lower decision boundary.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.errors import TheoryError
from ttpfl.federation.learn_rates import learn_rates
from ttpfl.util.settings_kit import integer

SPREAD = 0.8  # standard deviation of both classes
TRAINING, TESTING = 1 / 2, 5 / 6  # frequency of class +1
ALPHAS = (1.0, 0.5, 0.0, -0.5)  # the paper's
SOURCE_CLIENTS, SOURCE_SAMPLES = 16, 200
BIN_EDGES = np.arange(-20, 21) / 5


def accuracy(alpha: float, positive: float = TESTING) -> float:
    """A client's accuracy with rate `alpha` in closed form; `positive` is the frequency of class +1.

    >>> [round(accuracy(alpha), 3) for alpha in ALPHAS]
    [0.715, 0.823, 0.894, 0.926]
    """
    boundary = alpha * _mean(positive)
    below = NormalDist(0, SPREAD).cdf
    return positive * below(1 - boundary) + (1 - positive) * below(1 + boundary)


def best_alpha(positive: float = TESTING) -> float:
    """The rate with the highest accuracy, which is negative for any frequency.

    >>> round(best_alpha(), 4), round(accuracy(best_alpha()), 3)
    (-0.7725, 0.93)
    """
    if not 0 < positive < 1 or positive == TRAINING:
        raise TheoryError(f"positive must be between 0 and 1, and not {TRAINING}, got {positive}")
    boundary = -(SPREAD**2) / 2 * math.log(positive / (1 - positive))  # where both classes are equally likely
    return boundary / _mean(positive)


def _mean(positive: float) -> float:
    return 2 * positive - 1


class Samples(NamedTuple):
    """Numbers as a column, and their classes: 0 for -1, 1 for +1."""

    x: Tensor
    y: Tensor


def draw(positive: float, count: int, generator: np.random.Generator) -> Samples:
    """Draw samples; `positive` is the expected frequency of class +1."""
    y = (generator.random(count) < positive).astype(np.int64)
    x = generator.normal(2.0 * y - 1, SPREAD).astype(np.float32)
    return Samples(torch.from_numpy(x[:, None]), torch.from_numpy(y))


class OneNorm(nn.Module):
    """One BatchNorm layer as a classifier, with the statistics of `x`; calibrated for balanced classes."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, affine=False, momentum=None)  # without momentum: cumulative mean
        self.norm(x)
        self.eval()
        # The log odds of a number are 2 x / SPREAD^2, and the layer has divided x by its standard deviation.
        self.steepness = 2 * math.sqrt(1 + SPREAD**2) / SPREAD**2

    def forward(self, x: Tensor) -> Tensor:
        """Logits of both classes."""
        score = self.steepness * self.norm(x)
        return torch.cat([torch.zeros_like(score), score], dim=1)


def output(model: OneNorm, rates: Rates, x: Tensor) -> Tensor:
    """The output of the BatchNorm layer after adaptation to the batch `x`."""
    logits: Tensor = Personalizer(model, rates)(x)
    return logits[:, 1] / model.steepness


def learned(model: OneNorm, generator: np.random.Generator) -> Rates:
    """Learn rates on source clients with various class frequencies."""
    frequencies = generator.uniform(0.1, 0.9, SOURCE_CLIENTS)
    clients = [draw(positive, SOURCE_SAMPLES, generator) for positive in frequencies]
    initial = Rates.zeros(model, only="stats")
    return learn_rates(model, clients, rounds=20, lr=5.0, batch_size=SOURCE_SAMPLES, rates=initial)


def toy(alphas: Sequence[float] = ALPHAS, samples: int = 6000, seed: int = 0) -> dict[str, Any]:
    """Compute the example as plain data: accuracies in closed form and on samples, and histograms.

    Args:
        alphas: Rates of the running mean and variance to try.
        samples: Number of samples in training, and at the new client as one batch.
        seed: The random seed of the samples.

    >>> example = toy()
    >>> [round(line["sampled"], 2) for line in example["alphas"]]
    [0.71, 0.82, 0.9, 0.93]
    >>> example["learned"]["rates"]["norm.running_mean"] < 0
    True
    """
    integer(2).check(TheoryError, samples=samples)  # for a variance
    generator = np.random.default_rng(seed)
    train, test = draw(TRAINING, samples, generator), draw(TESTING, samples, generator)
    model = OneNorm(train.x)
    zeros, rates = Rates.zeros(model, only="stats"), learned(model, generator)
    learned_alphas = dict(zip(rates.names, rates.values.tolist(), strict=True))
    outputs = [output(model, zeros.with_values(zeros.values + alpha), test.x) for alpha in alphas]
    return {
        "samples": samples,
        "seed": seed,
        "training": {
            "closed_form": accuracy(0, TRAINING),
            "sampled": _accuracy(output(model, zeros, train.x), train.y),
        },
        "alphas": [
            {"alpha": alpha, "closed_form": accuracy(alpha), "sampled": _accuracy(z, test.y)}
            for alpha, z in zip(alphas, outputs, strict=True)
        ],
        "best": {"alpha": best_alpha(), "closed_form": accuracy(best_alpha())},
        "learned": {
            "rates": learned_alphas,
            "closed_form": accuracy(learned_alphas["norm.running_mean"]),
            "sampled": _accuracy(output(model, rates, test.x), test.y),
        },
        "histograms": {
            "edges": BIN_EDGES.tolist(),
            "before": {"training": _histogram(*train), "testing": _histogram(*test)},
            "after": [_histogram(z, test.y) for z in outputs],  # one for each of `alphas`
        },
    }


def _accuracy(z: Tensor, y: Tensor) -> float:
    return float(((z > 0) == (y == 1)).double().mean())


def _histogram(values: Tensor, y: Tensor) -> dict[str, list[int]]:
    """Counts by class; values outside all bins count in the outermost bins."""
    clipped = values.flatten().numpy().clip(BIN_EDGES[0], BIN_EDGES[-1])
    counts = {
        name: np.histogram(clipped[y.numpy() == label], BIN_EDGES)[0] for label, name in enumerate("-+")
    }
    return {name: count.tolist() for name, count in counts.items()}
