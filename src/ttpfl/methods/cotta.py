"""CoTTA: continual adaptation by a slow teacher and random restoration."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.learner import Learner
from ttpfl.methods.normalisation import batch_statistics
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.methods.strong_augmentation import is_images, strongly_augmented
from ttpfl.methods.teacher import Teacher
from ttpfl.util.settings_kit import FRACTION, NOT_NEGATIVE, integer, one_of


@method("cotta")
@dataclass(frozen=True)
class CoTTA(Method):
    """Optimizes all parameters to match a slow teacher, and restores some of them at random after each batch.

    The teacher predicts: by the mean of its logits over augmented images if the initial model is not
    confident on the batch, otherwise on the batch itself, as for inputs that are not images. BatchNorm uses
    the batch's statistics. Made for streams whose shift keeps changing. Without augmentation, there is little
    to learn, since teacher and student begin as equals.

    Paper: Wang, Fink, Van Gool and Dai, "Continual Test-Time Domain Adaptation", CVPR 2022.

    Defaults: the authors' code (github.com/qinenergy/cotta) for CIFAR-10, with batches of 200. For CIFAR-100
    it has confidence 0.72; for ImageNet confidence 0.1 and sgd with lr 0.01.
    """

    lr: float = tunable(1e-3, "the student's learning rate", (1e-5, 1e-4, 3e-4, 1e-3, 1e-2), NOT_NEGATIVE)
    follow: float = tunable(1e-3, "update rate of the teacher", (1e-4, 1e-3, 1e-2, 0.1), FRACTION)
    restore: float = tunable(0.01, "share of values restored per batch", (0.0, 1e-3, 0.01, 0.1), FRACTION)
    confidence: float = tunable(
        0.92, "augment where the initial model's mean confidence is lower", (0.1, 0.5, 0.72, 0.92), FRACTION
    )
    augmentations: int = tunable(32, "augmentations per image", limit=integer(1))
    optimizer: str = tunable("adam", "adam, or sgd with momentum 0.9", limit=one_of(*OPTIMIZERS))
    seed: int = tunable(0, "random seed of augmentations and restoration", limit=integer(0))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """Teacher and student, both with the model's parameters."""
        return _CoTTA(model, self)


def _all_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return dict(model.named_parameters())


class _CoTTA(Learner):
    def __init__(self, model: nn.Module, config: CoTTA) -> None:
        self._config = config
        self._source, self._teacher = Teacher(model, _all_parameters), Teacher(model, _all_parameters)
        super().__init__(model, _all_parameters, config.optimizer, config.lr)

    def adapt(self, batch: Any) -> Tensor:
        generator = torch.Generator().manual_seed(self._config.seed + self._batches)
        target = self._target(batch, generator)
        log_p = self.forward(batch, batch_statistics).log_softmax(1)
        self.descend(-(target.softmax(1) * log_p).sum(1).mean())
        self._teacher.follow(self.parameters, self._config.follow)
        self._restore(generator)
        self._batches += 1
        return target

    def _target(self, batch: Any, generator: Generator) -> Tensor:
        """The teacher's logits."""
        if not is_images(batch) or self._is_confident(batch):
            return self._teacher.logits(batch, batch_statistics)
        views = (strongly_augmented(batch, generator) for _ in range(self._config.augmentations))
        return torch.stack([self._teacher.logits(view, batch_statistics) for view in views]).mean(0)

    def _is_confident(self, batch: Tensor) -> bool:
        """Whether the initial model is."""
        probabilities = self._source.logits(batch, batch_statistics).softmax(1)
        return float(probabilities.amax(1).mean()) >= self._config.confidence

    @torch.no_grad()
    def _restore(self, generator: Generator) -> None:
        for parameter, initial in zip(self.parameters, self.initial, strict=True):
            restored = torch.rand(parameter.shape, generator=generator) < self._config.restore
            parameter.copy_(torch.where(restored.to(parameter.device), initial, parameter))

    def reset(self) -> None:
        super().reset()
        self._teacher.reset()
        self._batches = 0
