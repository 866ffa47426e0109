"""LAME: neighbours agree (Boudiaf, Mueller, Ben Ayed and Bertinetto, CVPR 2022)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ttpfl.direction import check_finite
from ttpfl.errors import MethodError
from ttpfl.methods.base import Knowledge, Method, Personal, method, tunable
from ttpfl.methods.head import Head
from ttpfl.statistics import at_least_float32

Array = NDArray[np.float64]
TINY = 1e-10  # added to probabilities before the logarithm
CONVERGED = 1e-8  # relative change of the energy


@method("lame")
@dataclass(frozen=True)
class LAME(Method):
    """Predictions of a batch are drawn towards those of their nearest neighbours; no weight changes.

    Laplacian adjusted maximum-likelihood estimation: the assignments Y minimise their divergence from the
    model's predictions minus the agreement of neighbours, by concave-convex iterations
    Y = softmax(log p + W Y), where W[i, j] is 1 if j is among the nearest neighbours of i, by
    the distance of normalised features.

    Paper: Boudiaf, Mueller, Ben Ayed and Bertinetto, "Parameter-free Online Test-time Adaptation", CVPR
    2022.
    """

    neighbours: int = tunable(5, "how many nearest neighbours count", grid=(1, 3, 5, 10))
    steps: int = tunable(100, "iterations at most; they end when the energy stays")
    layer: str = tunable("", "the last linear layer's name, for the features before it; found if empty")

    def __post_init__(self) -> None:
        for name in ("neighbours", "steps"):
            if getattr(self, name) < 1:
                raise MethodError(f"{name} is {getattr(self, name)}: it must be at least 1")

    def personal(self, model: nn.Module, knowledge: Knowledge) -> Personal:
        """The model whose answers are adjusted, each batch for itself."""
        return _Adjusted(model, self)


class _Adjusted(Personal):
    def __init__(self, model: nn.Module, config: LAME) -> None:
        super().__init__(model)
        self._head, self._config = Head(self.model, config.layer), config

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            features, logits = self._head.features_and_logits(batch)
            logits = at_least_float32(check_finite(logits))
            affinity = nearest(at_least_float32(features), self._config.neighbours).double()
            log_p = (logits.double().softmax(1) + TINY).log()
            log_y = assignments(log_p.numpy(force=True), affinity.numpy(force=True), self._config.steps)
            return torch.from_numpy(log_y).to(logits)

    def reset(self) -> None:
        pass


def nearest(features: Tensor, count: int) -> Tensor:
    """W[i, j] = 1 where j is one of the `count` nearest to i, itself apart."""
    features = F.normalize(features, dim=1)
    distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    found = distance.fill_diagonal_(torch.inf).topk(min(count, len(features) - 1), largest=False).indices
    return torch.zeros_like(distance).scatter_(1, found, 1.0)


def assignments(log_p: Array, affinity: Array, steps: int) -> Array:
    """The logarithm of Y after the iterations; numpy is quicker than torch on matrices this small."""
    y, before = np.exp(log_p) / np.exp(log_p).sum(1, keepdims=True), np.inf
    for step in range(steps):
        exponent = affinity @ y + log_p
        top = exponent.max(1, keepdims=True)
        y = np.exp(exponent - top)
        total = y.sum(1, keepdims=True)
        y /= total
        normaliser = top + np.log(total)
        energy = -float(normaliser.sum())  # which is <Y, log Y - log p - W Y_before>
        if step > 1 and abs(energy - before) <= CONVERGED * abs(before):
            break
        before = energy
    log_y: Array = exponent - normaliser
    return log_y
