"""MEMO: one step for every image."""

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
    """All parameters take one step for each image by itself, and are reset after it.

    The step minimises the entropy of the mean prediction over random augmentations of the image; then the
    image as it is gets predicted. As the authors of ATP have it, augmentations are crops out of the image
    with mirrored borders (MEMO's own for CIFAR-10: AugMix) and flips, and BatchNorm uses its stored
    statistics, unless `prior_strength` is given.

    Paper: Zhang, Levine and Finn, "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS
    2022.

    Defaults: one plain SGD step with this lr is from the authors' code (github.com/zhangmarvin/memo) for
    CIFAR-10, which has 32 augmentations; all else from that of ATP (github.com/baowenxuan/ATP), which pads
    images of 224 pixels by 32. A network that was trained without such crops and flips may need a smaller
    step: tune it.
    """

    stateful = False

    lr: float = tunable(
        0.005, "step size", grid=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05), limit=NOT_NEGATIVE
    )
    augmentations: int = tunable(16, "augmentations per image", limit=integer(1))
    padding: int = tunable(
        4, "mirrored pixels around the image out of which crops are taken", limit=integer(0)
    )
    prior_strength: float | None = tunable(
        None,
        "BatchNorm: N/(N+1) stored and 1/(N+1) own statistics (16 in MEMO's paper); None: stored ones",
        limit=NOT_NEGATIVE,
    )
    seed: int = tunable(
        0, "of the augmentations, together with the image's number in the stream", limit=integer(0)
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A twin of the model that moves for one image at a time."""
        return _OneByOne(model, self)


class _OneByOne(Adapter):
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
        answers = torch.cat([self._answer(image, self._seen + n) for n, image in enumerate(batch)])
        self._seen += len(batch) if all_finite(answers) else 0
        return answers

    def _answer(self, image: Tensor, number: int) -> Tensor:
        draw = np.random.default_rng((self._config.seed, number))
        views = augmented(image, self._config.augmentations, self._config.padding, draw)
        direction = probe(self._twin, Inputs((views,), {}), marginal_entropy).direction
        with torch.no_grad():
            return self._twin.plain(Inputs((image[None],), {}), move(self._twin, direction, self._rates))

    def reset(self) -> None:
        self._seen = 0
