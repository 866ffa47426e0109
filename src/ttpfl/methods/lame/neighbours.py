"""Affinities of the samples of a batch, and the assignments that LAME derives from them."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Affinity = Callable[[Tensor, int], Tensor]
CONVERGED = 1e-8  # relative change of the energy


def rbf(features: Tensor, count: int) -> Tensor:
    """W[i, j] = exp(-d^2 / (2 s^2)); s is the mean distance to the `count`-th nearest, i itself included."""
    distance = _distances(features)
    ranked = distance.topk(min(count, len(distance)), largest=False).values
    width = ranked[:, -1].mean().clamp_min(torch.finfo(distance.dtype).tiny)
    return torch.exp(-((distance / width) ** 2) / 2)


def knn(features: Tensor, count: int) -> Tensor:
    """W[i, j] = 1 if j is among the `count` nearest to i, i itself excluded; otherwise 0."""
    distance = _distances(features)
    nearest = distance.fill_diagonal_(torch.inf).topk(min(count, len(features) - 1), largest=False).indices
    return torch.zeros_like(distance).scatter_(1, nearest, 1.0)


def linear(features: Tensor, count: int) -> Tensor:
    """W[i, j] is the cosine between i and j; `count` is ignored."""
    features = F.normalize(features, dim=1)
    return features @ features.T


AFFINITIES: dict[str, Affinity] = {"rbf": rbf, "knn": knn, "linear": linear}


def _distances(features: Tensor) -> Tensor:
    features = F.normalize(features, dim=1)
    return torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")


def assignments(log_p: Array, affinity: Array, steps: int) -> Array:
    """log Y after the iterations Y = softmax(log p + W Y).

    Numpy is faster than torch on matrices this small.
    """
    y, before = np.exp(log_p) / np.exp(log_p).sum(1, keepdims=True), np.inf
    for step in range(steps):
        exponent = affinity @ y + log_p
        top = exponent.max(1, keepdims=True)
        y = np.exp(exponent - top)
        total = y.sum(1, keepdims=True)
        y /= total
        normaliser = top + np.log(total)
        energy = -float(normaliser.sum())  # equals <Y, log Y - log p - W Y_before>
        if step > 1 and abs(energy - before) <= CONVERGED * abs(before):
            break
        before = energy
    log_y: Array = exponent - normaliser
    return log_y
