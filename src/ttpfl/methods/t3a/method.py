"""T3A: a prototype classifier."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.direction import check_finite
from ttpfl.core.statistics import at_least_float32
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.head import Head
from ttpfl.methods.t3a.supports import Supports
from ttpfl.util.settings_kit import STRING, integer


@method("t3a")
@dataclass(frozen=True)
class T3A(Method):
    """Replaces the last layer's weights by the mean direction of each class's features so far.

    The initial supports are the rows of the last linear layer. Each sample's features become a support of
    the class that the unadapted model predicts; per class, the `supports` with the lowest entropy are kept.
    A class's weights are the normalised sum of its normalised supports.

    Paper: Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain
    Generalization", NeurIPS 2021.

    Defaults: all supports, as in the ATP authors' code; the grid is that of github.com/matsuolab/T3A.
    """

    supports: int | None = tunable(
        None, "supports to keep per class; None keeps all", (1, 5, 20, 50, 100, None), integer(1)
    )
    layer: str = tunable("", "name of the last linear layer; detected if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with its initial supports."""
        return PrototypeClassifier(model, self.layer, self.supports)


class PrototypeClassifier(Adapter):
    """A last layer made of supports.

    Args:
        model: The user's model, which is copied.
        layer: The name of the last linear layer; detected if empty.
        keep: The number of supports to keep per class; None keeps all.
    """

    def __init__(self, model: nn.Module, layer: str, keep: int | None) -> None:
        super().__init__(model)
        self._head, self._keep = Head(self.model, layer), keep
        rows = self._head.layer.weight.detach()
        classes, width = rows.shape
        with torch.no_grad():
            empty = Supports.none(classes, width, rows.device)
            self._initial = empty.joined(rows, self._head.layer(rows), self._keep)
        self._supports = self._initial

    def forward(self, batch: Any) -> Tensor:
        """The logits of the model, whose features are classified; an error if they are not finite."""
        return self.plain(batch)

    def adapt(self, batch: Any) -> Tensor:
        """Add the features to the supports and classify them."""
        with torch.no_grad():
            features, logits = self._head.features_and_logits(batch, self.forward)
            supports = self._supports.joined(features, logits, self._keep)
            features = at_least_float32(features)
            logits = check_finite(features @ F.normalize(supports.sums, dim=1).to(features.dtype).T)
        self._supports = supports
        return logits

    def reset(self) -> None:
        """Restore the initial supports."""
        self._supports = self._initial
