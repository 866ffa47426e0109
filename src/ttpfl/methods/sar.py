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
    """Optimizes scale and shift of normalisation layers on confident samples, towards flat minima.

    The last quarter of the network's blocks is frozen (ResNet's layer4, the last three of a transformer's
    twelve). The gradient is taken where the loss within a distance of `rho` is largest. If predictions
    collapse, the model is reset.

    Paper: Niu, Wu, Zhang, Wen, Chen, Zhao and Tan, "Towards Stable Test-Time Adaptation in Dynamic Wild
    World", ICLR 2023.

    Defaults: the authors' code (github.com/mr-eggplant/SAR) for ImageNet and ResNets. For batches of n < 32
    samples it scales lr by n / 32. After a collapse, the mean entropy is reset.
    """

    lr: float = tunable(2.5e-4, "learning rate", (1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2), NOT_NEGATIVE)
    margin: float = tunable(0.4, "maximum entropy / log(classes)", (0.2, 0.3, 0.4, 0.5, 0.6), NOT_NEGATIVE)
    rho: float = tunable(0.05, "radius of the sharpness search", (0.01, 0.02, 0.05, 0.1, 0.2), NOT_NEGATIVE)
    recovery: float = tunable(0.2, "reset below this mean entropy", (0.0, 0.05, 0.1, 0.2, 0.3), NOT_NEGATIVE)
    optimizer: str = tunable("sgd", "sgd with momentum 0.9, or adam", limit=one_of(*OPTIMIZERS))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model with a new optimizer."""
        return _SAR(model, self)


class _SAR(Learner):
    _mean: float | None  # moving average of the entropy where the gradient is taken

    def __init__(self, model: nn.Module, config: SAR) -> None:
        super().__init__(model, lower_affine_parameters, config.optimizer, config.lr)
        self._config = config

    def adapt(self, batch: Any) -> Tensor:
        logits = self.forward(batch, batch_statistics)
        margin = self._config.margin * math.log(logits.shape[1])
        entropy = entropies(logits)
        reliable = entropy.detach() < margin
        if reliable.any():
            loss = self._sharpness_step(batch, self.gradients(entropy[reliable].mean()), reliable, margin)
            if loss is not None:
                self._mean = loss if self._mean is None else 0.9 * self._mean + 0.1 * loss
                if self._mean < self._config.recovery:
                    self.reset()
        return logits

    def _sharpness_step(
        self, batch: Any, ascent: tuple[Tensor, ...], reliable: Tensor, margin: float
    ) -> float | None:
        """Step by the gradient at the ascent point; return the entropy there, if any sample is reliable."""
        current = [parameter.detach().clone() for parameter in self.parameters]
        scale = self._config.rho / (torch.stack([g.norm() for g in ascent]).norm() + 1e-12)
        try:
            self.set_parameters(
                [old + scale * gradient for old, gradient in zip(current, ascent, strict=True)]
            )
            entropy = entropies(self.forward(batch, batch_statistics))
            reliable = reliable & (entropy.detach() < margin)
            loss = entropy[reliable].mean()
            gradients = self.gradients(loss) if reliable.any() else None
        finally:
            self.set_parameters(current)
        if gradients is None:
            return None
        self.optimizer.step(gradients)
        return float(loss.detach())

    def reset(self) -> None:
        super().reset()
        self._mean = None
