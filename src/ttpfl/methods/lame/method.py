"""LAME: similar samples get similar predictions."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.methods.base import Method, SourceInfo, StatelessAdapter, method, tunable
from ttpfl.methods.head import Head
from ttpfl.methods.lame.neighbours import AFFINITIES, assignments
from ttpfl.util.settings_kit import STRING, integer, one_of

EPSILON = 1e-10  # added to probabilities before the logarithm


@method("lame")
@dataclass(frozen=True)
class LAME(Method):
    """Moves the predictions of a batch towards those of similar samples; no model weight changes.

    Laplacian adjusted maximum-likelihood estimation: the assignments Y minimise their divergence from the
    model's predictions minus the agreement of similar samples, by concave-convex iterations
    Y = softmax(log p + W Y), where W is the affinity of two samples' normalised features.

    Paper: Boudiaf, Mueller, Ben Ayed and Bertinetto, "Parameter-free Online Test-time Adaptation", CVPR
    2022.

    Defaults: the authors' code (github.com/fiveai/LAME), which tunes neighbours over 1, 3, 5 and the affinity
    over all three.
    """

    stateful = False

    affinity: str = tunable(
        "rbf",
        "rbf (by distance), knn (1 for the nearest, otherwise 0) or linear (cosine)",
        ("rbf", "knn", "linear"),
        one_of(*AFFINITIES),
    )
    neighbours: int = tunable(
        5, "number of neighbours (knn), or rank that sets the width (rbf)", (1, 3, 5, 10), integer(1)
    )
    steps: int = tunable(100, "maximum number of iterations", limit=integer(1))
    layer: str = tunable("", "name of the last linear layer; detected if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> StatelessAdapter:
        """The model with adjusted predictions."""
        return _LAME(model, self)


class _LAME(StatelessAdapter):
    def __init__(self, model: nn.Module, config: LAME) -> None:
        super().__init__(model)
        self._head, self._config = Head(self.model, config.layer), config

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            features, logits = self._head.features_and_logits(batch, self.plain)
            logits = at_least_float32(logits)
            affinity = AFFINITIES[self._config.affinity](at_least_float32(features), self._config.neighbours)
            log_p = (logits.double().softmax(1) + EPSILON).log()
            arrays = log_p.numpy(force=True), affinity.double().numpy(force=True)
            return torch.from_numpy(assignments(*arrays, self._config.steps)).to(logits)
