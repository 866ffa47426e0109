"""T3A: a classifier of prototypes."""

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
    """The last layer's weights give way to the mean direction of each class's features; online.

    The rows of the last linear layer are the first supports. Each sample's features become a support of
    the class that the plain model predicts; the `supports` with the lowest entropy are kept per class. A
    class's weights are the normalised sum of its normalised supports. Everything else stays.

    Paper: Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain
    Generalization", NeurIPS 2021.

    Defaults: all supports are kept in the code of ATP; the grid is that of github.com/matsuolab/T3A.
    """

    supports: int | None = tunable(
        None,
        "how many supports are kept per class, those of lowest entropy; None keeps all",
        grid=(1, 5, 20, 50, 100, None),
        limit=integer(1),
    )
    layer: str = tunable("", "the last linear layer's name; found if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a support set that grows with the stream."""
        return _Prototypes(model, self)


class _Prototypes(Adapter):
    def __init__(self, model: nn.Module, config: T3A) -> None:
        super().__init__(model)
        self._head, self._keep = Head(self.model, config.layer), config.supports
        rows = self._head.layer.weight.detach()
        classes, width = rows.shape
        with torch.no_grad():
            nothing = Supports.none(classes, width, rows.device)
            self._first = nothing.joined(rows, self._head.layer(rows), self._keep)
        self._supports = self._first

    def adapt(self, batch: Any) -> Tensor:
        with torch.no_grad():
            features, logits = self._head.features_and_logits(batch, self.plain)
            supports = self._supports.joined(features, logits, self._keep)
            features = at_least_float32(features)
            answer = check_finite(features @ F.normalize(supports.sums, dim=1).to(features.dtype).T)
        self._supports = supports
        return answer

    def reset(self) -> None:
        self._supports = self._first
