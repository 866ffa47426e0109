"""SHOT: information maximisation and pseudo-labels in the feature extractor."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.head import Head
from ttpfl.methods.learner import Learner, entropies
from ttpfl.methods.normalisation import batch_statistics
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.util.settings_kit import NOT_NEGATIVE, STRING, one_of


@method("shot")
@dataclass(frozen=True)
class SHOT(Method):
    """Optimizes all parameters except the last layer's for confident, diverse predictions near centroids.

    BatchNorm uses the batch's statistics. Each batch is predicted before its gradient step, and steps
    accumulate over batches. Centroids are computed on the batch.

    Paper: Liang, Hu and Feng, "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for
    Unsupervised Domain Adaptation", ICML 2020.

    Defaults: the authors' code (github.com/tim-learn/SHOT), with its lr of the feature extractor. The ATP
    authors' code has beta 0: no pseudo-labels.
    """

    lr: float = tunable(1e-3, "learning rate", (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), NOT_NEGATIVE)
    beta: float = tunable(0.3, "weight of the pseudo-labels", (0.0, 0.1, 0.3, 1.0), NOT_NEGATIVE)
    optimizer: str = tunable("sgd", "sgd with momentum 0.9, or adam", limit=one_of(*OPTIMIZERS))
    head: str = tunable("", "name of the last linear layer; detected if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a new optimizer."""
        return _SHOT(model, self)


class _SHOT(Learner):
    def __init__(self, model: nn.Module, config: SHOT) -> None:
        def extractor(model: nn.Module) -> dict[str, nn.Parameter]:
            head = Head(model, config.head)
            frozen = {id(parameter) for parameter in head.layer.parameters()}
            parameters = {n: p for n, p in model.named_parameters() if id(p) not in frozen}
            if not parameters:
                raise MethodError(f"there are no parameters to adapt before the last layer {head.name!r}")
            return parameters

        super().__init__(model, extractor, config.optimizer, config.lr)
        self._beta = config.beta
        self._head = Head(self.model, config.head)

    def adapt(self, batch: Any) -> Tensor:
        forward = partial(self.forward, batch_norm=batch_statistics)
        features, logits = self._head.features_and_logits(batch, forward)
        labels = pseudo_labels(features.detach(), logits.detach())
        log_mean = torch.log_softmax(logits, 1).logsumexp(0) - math.log(len(logits))
        diversity = -(log_mean.exp() * log_mean).sum()
        loss = entropies(logits).mean() - diversity + self._beta * F.cross_entropy(logits, labels)
        self.descend(loss)
        return logits


def pseudo_labels(features: Tensor, logits: Tensor) -> Tensor:
    """The class of the nearest centroid by cosine; centroids of predictions first, then of pseudo-labels.

    Only classes with at least one sample get a centroid.
    """
    weights, labels = logits.softmax(1), logits.argmax(1)
    directions = F.normalize(features, dim=1)
    for _ in range(2):
        present = labels.unique()
        centroids = F.normalize(weights.T[present] @ features, dim=1)
        labels = present[(directions @ centroids.T).argmax(1)]
        weights = F.one_hot(labels, logits.shape[1]).to(features.dtype)
    return labels
