"""OFTTA: batch statistics weighted by depth, and a prototype classifier."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.core.direction import check_finite
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.normalisation import by_depth, require_batch_norm
from ttpfl.methods.t3a.method import PrototypeClassifier
from ttpfl.util.settings_kit import STRING, integer, number

WEIGHT = number("above 0 and at most 1", lambda weight: 0 < weight <= 1)


@method("oftta")
@dataclass(frozen=True)
class OFTTA(Method):
    """Mixes BatchNorm's statistics with the batch's, less so in deeper layers; the last layer is that of T3A.

    The weight of the stored statistics grows exponentially, from `shallow` in the first BatchNorm layer to
    `deep` in the last. With these features, each sample becomes a support of its predicted class, as in
    `t3a`. If both weights are 1, the method is T3A.

    Paper: Wang, Wang, Xi, Zhang, Zhang and Wei, "Optimization-Free Test-Time Adaptation for Cross-Person
    Activity Recognition", IMWUT 2023.

    Defaults: the authors' code (github.com/Claydon-Wang/OFTTA), with batches of 128. As there, standard
    deviations are mixed rather than variances. Layers are counted in the order of the network's modules.
    """

    shallow: float = tunable(
        0.1,
        "weight of the stored statistics in the first BatchNorm layer",
        (0.01, 0.1, 0.3, 0.6, 1.0),
        WEIGHT,
    )
    deep: float = tunable(
        0.99, "their weight in the last BatchNorm layer", (0.3, 0.6, 0.9, 0.99, 1.0), WEIGHT
    )
    supports: int = tunable(25, "supports to keep per class", (1, 5, 25, 100, 1000), integer(1))
    layer: str = tunable("", "name of the last linear layer; detected if empty", limit=STRING)

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with its initial supports."""
        return _OFTTA(model, self)


class _OFTTA(PrototypeClassifier):
    def __init__(self, model: nn.Module, config: OFTTA) -> None:
        require_batch_norm(model)
        super().__init__(model, config.layer, config.supports)
        self._batch_norm = by_depth(self.model, config.shallow, config.deep)

    def forward(self, batch: Any) -> Tensor:
        return check_finite(self.fast(batch, self._batch_norm))
