"""The paper's toy example of negative rates: where adapting the other way round is right.

Two classes of numbers, around -1 and +1, equally frequent in training. The classifier is one BatchNorm layer:
class +1 is where its output is positive. At a new client, five samples out of six are of class +1. The
running mean would follow them up to 2/3, as if the numbers had moved. But only the classes' frequencies have
changed, and for these the boundary has to move down.
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

SPREAD = 0.8  # standard deviation of either class
TRAINING, TESTING = 1 / 2, 5 / 6  # how frequent class +1 is
ALPHAS = (1.0, 0.5, 0.0, -0.5)  # the paper's
SOURCE_CLIENTS, SOURCE_SAMPLES = 16, 200
BIN_EDGES = np.arange(-20, 21) / 5


def accuracy(alpha: float, positive: float = TESTING) -> float:
    """The closed form of a client's accuracy with rate `alpha`, if class +1 has the frequency `positive`.

    >>> [round(accuracy(alpha), 3) for alpha in ALPHAS]
    [0.715, 0.823, 0.894, 0.926]
    """
    boundary = alpha * _mean(positive)
    below = NormalDist(0, SPREAD).cdf
    return positive * below(1 - boundary) + (1 - positive) * below(1 + boundary)


def best_alpha(positive: float = TESTING) -> float:
    """The rate with the best accuracy. It is negative, whichever class is the frequent one.

    >>> round(best_alpha(), 4), round(accuracy(best_alpha()), 3)
    (-0.7725, 0.93)
    """
    if not 0 < positive < 1 or positive == TRAINING:
        raise TheoryError(f"positive is {positive}: it must lie between 0 and 1, and not be {TRAINING}")
    boundary = -(SPREAD**2) / 2 * math.log(positive / (1 - positive))  # both classes are as likely there
    return boundary / _mean(positive)


def _mean(positive: float) -> float:
    return 2 * positive - 1


class Samples(NamedTuple):
    """Numbers, as a column, and their classes: 0 for -1, and 1 for +1."""

    x: Tensor
    y: Tensor


def draw(positive: float, count: int, generator: np.random.Generator) -> Samples:
    """Samples of which class +1 has the frequency `positive`, in the mean."""
    y = (generator.random(count) < positive).astype(np.int64)
    x = generator.normal(2.0 * y - 1, SPREAD).astype(np.float32)
    return Samples(torch.from_numpy(x[:, None]), torch.from_numpy(y))


class OneNorm(nn.Module):
    """One BatchNorm layer as a classifier, with the statistics of `x`; calibrated where classes are even."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, affine=False, momentum=None)  # without momentum: the plain mean
        self.norm(x)
        self.eval()
        # The log odds of a number are 2 x / SPREAD^2, and the layer has divided x by its standard deviation.
        self.steepness = 2 * math.sqrt(1 + SPREAD**2) / SPREAD**2

    def forward(self, x: Tensor) -> Tensor:
        """Logits of both classes."""
        score = self.steepness * self.norm(x)
        return torch.cat([torch.zeros_like(score), score], dim=1)


def output(model: OneNorm, rates: Rates, x: Tensor) -> Tensor:
    """What the BatchNorm layer says after adaptation to the batch `x`."""
    logits: Tensor = Personalizer(model, rates)(x)
    return logits[:, 1] / model.steepness


def learned(model: OneNorm, generator: np.random.Generator) -> Rates:
    """What the library finds by itself, on source clients that have class frequencies of their own."""
    frequencies = generator.uniform(0.1, 0.9, SOURCE_CLIENTS)
    clients = [draw(positive, SOURCE_SAMPLES, generator) for positive in frequencies]
    begin = Rates.zeros(model, only="stats")
    return learn_rates(model, clients, rounds=20, lr=5.0, batch_size=SOURCE_SAMPLES, rates=begin)


def toy(alphas: Sequence[float] = ALPHAS, samples: int = 6000, seed: int = 0) -> dict[str, Any]:
    """The whole example as plain data: accuracies in closed form and on samples, and histograms.

    Args:
        alphas: rates, of the running mean and of the running variance, to be tried.
        samples: in training, and at the new client, where all of them are one batch.
        seed: of the samples.

    >>> example = toy()
    >>> [round(line["sampled"], 2) for line in example["alphas"]]
    [0.71, 0.82, 0.9, 0.93]
    >>> example["learned"]["rates"]["norm.running_mean"] < 0
    True
    """
    integer(2).check(TheoryError, samples=samples)  # so that there is a variance
    generator = np.random.default_rng(seed)
    train, test = draw(TRAINING, samples, generator), draw(TESTING, samples, generator)
    model = OneNorm(train.x)
    zeros, own = Rates.zeros(model, only="stats"), learned(model, generator)
    own_alphas = dict(zip(own.names, own.values.tolist(), strict=True))
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
            "rates": own_alphas,
            "closed_form": accuracy(own_alphas["norm.running_mean"]),
            "sampled": _accuracy(output(model, own, test.x), test.y),
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
    """Counts by class; what is outside all bins counts in the outermost."""
    inside = values.flatten().numpy().clip(BIN_EDGES[0], BIN_EDGES[-1])
    counts = {name: np.histogram(inside[y.numpy() == label], BIN_EDGES)[0] for label, name in enumerate("-+")}
    return {name: count.tolist() for name, count in counts.items()}
