"""SHOT: information maximisation and pseudo-labels, in the feature extractor."""

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
    """All parameters but the last layer's learn: certain predictions of all classes, near centroids.

    BatchNorm uses the batch's statistics. Each batch is answered first, then it gives one step, and
    learning goes on from batch to batch. The centroids are the batch's own.

    Paper: Liang, Hu and Feng, "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for
    Unsupervised Domain Adaptation", ICML 2020.

    Defaults: those of the authors' code (github.com/tim-learn/SHOT): 1e-3 is its lr of the feature extractor.
    The authors of ATP have beta 0, which leaves out the pseudo-labels.
    """

    lr: float = tunable(1e-3, "step size", (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), NOT_NEGATIVE)
    beta: float = tunable(0.3, "weight of the pseudo-labels", (0.0, 0.1, 0.3, 1.0), NOT_NEGATIVE)
    optimizer: str = tunable("sgd", "sgd with a momentum of 0.9, or adam", limit=one_of(*OPTIMIZERS))
    head: str = tunable("", "name of the last linear layer; found by itself if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model, ready to learn."""
        return _SHOT(model, self)


class _SHOT(Learner):
    def __init__(self, model: nn.Module, config: SHOT) -> None:
        def extractor(model: nn.Module) -> dict[str, nn.Parameter]:
            head = Head(model, config.head)
            frozen = {id(parameter) for parameter in head.layer.parameters()}
            found = {n: p for n, p in model.named_parameters() if id(p) not in frozen}
            if not found:
                raise MethodError(f"there is nothing to adapt in front of the last layer {head.name!r}")
            return found

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
    """The class of the nearest centroid by cosine; centroids first from predictions, then from that.

    Only classes that some sample has so far get a centroid.
    """
    weights, labels = logits.softmax(1), logits.argmax(1)
    directions = F.normalize(features, dim=1)
    for _ in range(2):
        present = labels.unique()
        centroids = F.normalize(weights.T[present] @ features, dim=1)
        labels = present[(directions @ centroids.T).argmax(1)]
        weights = F.one_hot(labels, logits.shape[1]).to(features.dtype)
    return labels
