"""LAME: alike samples agree."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.statistics import at_least_float32
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.head import Head
from ttpfl.methods.lame.neighbours import AFFINITIES, assignments
from ttpfl.util.settings_kit import STRING, integer, one_of

TINY = 1e-10  # added to probabilities before the logarithm


@method("lame")
@dataclass(frozen=True)
class LAME(Method):
    """Predictions of a batch are drawn towards those of alike samples; no weight changes.

    Laplacian adjusted maximum-likelihood estimation: the assignments Y minimise their divergence from the
    model's predictions minus the agreement of alike samples, by concave-convex iterations
    Y = softmax(log p + W Y), where W says how alike two samples are, by their normalised features.

    Paper: Boudiaf, Mueller, Ben Ayed and Bertinetto, "Parameter-free Online Test-time Adaptation", CVPR
    2022.

    Defaults: those of the authors' code (github.com/fiveai/LAME): affinity rbf, 5 neighbours, 100
    iterations; it tunes neighbours over 1, 3, 5 and the affinity over all three.
    """

    stateful = False

    affinity: str = tunable(
        "rbf",
        "rbf (by distance), knn (1 for the nearest, else 0) or linear (cosine)",
        ("rbf", "knn", "linear"),
        one_of(*AFFINITIES),
    )
    neighbours: int = tunable(
        5,
        "knn: how many count; rbf: its width is the distance to the one of this rank",
        grid=(1, 3, 5, 10),
        limit=integer(1),
    )
    steps: int = tunable(100, "iterations at most; they end when the energy stays", limit=integer(1))
    layer: str = tunable(
        "", "the last linear layer's name, for the features before it; found if empty", limit=STRING
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model whose answers are adjusted, each batch for itself."""
        return _Adjusted(model, self)


class _Adjusted(Adapter):
    def __init__(self, model: nn.Module, config: LAME) -> None:
        super().__init__(model)
        self._head, self._config = Head(self.model, config.layer), config

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            features, logits = self._head.features_and_logits(batch, self.plain)
            logits = at_least_float32(logits)
            alike = AFFINITIES[self._config.affinity](at_least_float32(features), self._config.neighbours)
            log_p = (logits.double().softmax(1) + TINY).log()
            log_y = assignments(log_p.numpy(force=True), alike.double().numpy(force=True), self._config.steps)
            return torch.from_numpy(log_y).to(logits)

    def reset(self) -> None:
        pass
