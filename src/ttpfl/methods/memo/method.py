"""MEMO: one gradient step for each image."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ttpfl.core.direction import move, probe
from ttpfl.core.inputs import Inputs, all_finite
from ttpfl.core.network import describe
from ttpfl.core.twin import Twin
from ttpfl.errors import MethodError
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.memo.views import augmented, marginal_entropy, mix_statistics
from ttpfl.util.settings_kit import NOT_NEGATIVE, integer


@method("memo")
@dataclass(frozen=True)
class MEMO(Method):
    """Takes one gradient step in all parameters for each image, then resets them.

    The step minimises the entropy of the mean prediction over random augmentations; then the original image
    is predicted. As in the ATP authors' code, augmentations are flips and crops out of the image with
    mirrored borders (MEMO uses AugMix for CIFAR-10), and BatchNorm uses its stored statistics unless
    `prior_strength` is set.

    Paper: Zhang, Levine and Finn, "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS
    2022.

    Defaults: lr as in the authors' code (github.com/zhangmarvin/memo) for CIFAR-10, which has 32
    augmentations; everything else as in ATP's (github.com/baowenxuan/ATP), which pads images of 224 pixels
    by 32. A network trained without such crops and flips may need a smaller lr: tune it.
    """

    stateful = False

    lr: float = tunable(
        0.005, "learning rate", grid=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05), limit=NOT_NEGATIVE
    )
    augmentations: int = tunable(16, "augmentations per image", limit=integer(1))
    padding: int = tunable(4, "mirrored border for crops, in pixels", limit=integer(0))
    prior_strength: float | None = tunable(
        None,
        "N mixes BatchNorm statistics, N/(N+1) stored and 1/(N+1) new (paper: 16); None: only stored",
        limit=NOT_NEGATIVE,
    )
    seed: int = tunable(0, "random seed of the augmentations", limit=integer(0))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A copy of the model that adapts to one image at a time."""
        return _MEMO(model, self)


class _MEMO(Adapter):
    def __init__(self, model: nn.Module, config: MEMO) -> None:
        self._twin = Twin(model, [spec for spec in describe(model) if not spec.statistic])
        self._config = config
        lr = torch.tensor(config.lr, device=self._twin.device)
        self._rates = dict.fromkeys(self._twin.specs, lr)
        if config.prior_strength is not None:
            mix_statistics(self._twin.model, 1 / (config.prior_strength + 1))
        self.reset()

    def adapt(self, batch: Any) -> Tensor:
        if not isinstance(batch, Tensor) or batch.ndim != 4 or not batch.is_floating_point():
            kind = str(tuple(batch.shape)) if isinstance(batch, Tensor) else type(batch).__name__
            raise MethodError(
                f"memo crops and flips images of shape (batch, channels, height, width), not {kind}: "
                "choose another method for these inputs"
            )
        logits = torch.cat([self._logits(image, self._seen + n) for n, image in enumerate(batch)])
        self._seen += len(batch) if all_finite(logits) else 0
        return logits

    def _logits(self, image: Tensor, number: int) -> Tensor:
        random = np.random.default_rng((self._config.seed, number))
        views = augmented(image, self._config.augmentations, self._config.padding, random)
        direction = probe(self._twin, Inputs((views,), {}), marginal_entropy).direction
        with torch.no_grad():
            return self._twin.plain(Inputs((image[None],), {}), move(self._twin, direction, self._rates))

    def reset(self) -> None:
        self._seen = 0
