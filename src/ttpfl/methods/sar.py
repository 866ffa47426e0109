"""SAR: sharpness-aware and reliable entropy minimisation."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.learner import Learner, entropies
from ttpfl.methods.normalisation import batch_statistics, lower_affine_parameters
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.util.settings_kit import NOT_NEGATIVE, one_of


@method("sar")
@dataclass(frozen=True)
class SAR(Method):
    """Scale and shift of normalisation layers, as in Tent, on sure samples and towards flat minima.

    The last quarter of the network's blocks does not learn (ResNet's layer4, the last three of a
    transformer's twelve). The gradient is taken where the loss within a distance of `rho` is largest. If
    predictions become all too certain, the model is put back to the start.

    Paper: Niu, Wu, Zhang, Wen, Chen, Zhao and Tan, "Towards Stable Test-Time Adaptation in Dynamic Wild
    World", ICLR 2023.

    Defaults: those of the authors' code (github.com/mr-eggplant/SAR) for ImageNet and ResNets. For batches
    of n < 32 samples it takes n / 32 of this lr. After a collapse, the mean entropy begins anew.
    """

    lr: float = tunable(2.5e-4, "step size", (1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2), NOT_NEGATIVE)
    margin: float = tunable(
        0.4, "largest entropy, as a share of log(classes)", (0.2, 0.3, 0.4, 0.5, 0.6), NOT_NEGATIVE
    )
    rho: float = tunable(0.05, "how far to look for sharpness", (0.01, 0.02, 0.05, 0.1, 0.2), NOT_NEGATIVE)
    recovery: float = tunable(
        0.2, "mean entropy that counts as collapse", (0.0, 0.05, 0.1, 0.2, 0.3), NOT_NEGATIVE
    )
    optimizer: str = tunable("sgd", "sgd with a momentum of 0.9, or adam", limit=one_of(*OPTIMIZERS))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model, ready to learn."""
        return _SAR(model, self)


class _SAR(Learner):
    _mean: float | None  # of the entropy where the gradient is taken

    def __init__(self, model: nn.Module, config: SAR) -> None:
        super().__init__(model, lower_affine_parameters, config.optimizer, config.lr)
        self._config = config

    def adapt(self, batch: Any) -> Tensor:
        logits = self.forward(batch, batch_statistics)
        margin = self._config.margin * math.log(logits.shape[1])
        entropy = entropies(logits)
        reliable = entropy.detach() < margin
        if reliable.any():
            loss = self._sharp(batch, self.gradients(entropy[reliable].mean()), reliable, margin)
            if loss is not None:
                self._mean = loss if self._mean is None else 0.9 * self._mean + 0.1 * loss
                if self._mean < self._config.recovery:
                    self.reset()
        return logits

    def _sharp(self, batch: Any, uphill: tuple[Tensor, ...], reliable: Tensor, margin: float) -> float | None:
        """A step by the gradient found uphill; the entropy there, if any sample is still reliable."""
        here = [parameter.detach().clone() for parameter in self.parameters]
        scale = self._config.rho / (torch.stack([g.norm() for g in uphill]).norm() + 1e-12)
        try:
            self.put([old + scale * gradient for old, gradient in zip(here, uphill, strict=True)])
            entropy = entropies(self.forward(batch, batch_statistics))
            still = reliable & (entropy.detach() < margin)
            loss = entropy[still].mean()
            gradients = self.gradients(loss) if still.any() else None
        finally:
            self.put(here)
        if gradients is None:
            return None
        self.optimizer.step(gradients)
        return float(loss.detach())

    def reset(self) -> None:
        super().reset()
        self._mean = None
