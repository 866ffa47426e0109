"""RoTTA: robust adaptation to temporally correlated streams."""

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from ttpfl.core.inputs import map_tensors
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.methods.learner import Learner, entropies
from ttpfl.methods.normalisation import RobustStatistics, affine_parameters
from ttpfl.methods.optimizer import OPTIMIZERS
from ttpfl.methods.rotta.balanced_memory import BalancedMemory
from ttpfl.methods.strong_augmentation import strongly_augmented
from ttpfl.methods.teacher import Teacher
from ttpfl.util.settings_kit import FRACTION, NOT_NEGATIVE, integer, one_of


@method("rotta")
@dataclass(frozen=True)
class RoTTA(Method):
    """Adapts normalisation layers with a slow teacher and a class-balanced memory of samples.

    The teacher predicts. Whenever as many samples have arrived as the memory holds, BatchNorm's statistics
    follow the memory by a moving average, and a student optimizes scale and shift to match the teacher's
    predictions on it. Made for temporally correlated streams, such as one class after another.

    Paper: Yuan, Xie and Li, "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023.

    Defaults: the authors' code (github.com/BIT-DA/RoTTA) for CIFAR-10, with batches of 64. It draws one
    random change of colour per batch; here each image has its own.
    """

    lr: float = tunable(1e-3, "the student's learning rate", (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), NOT_NEGATIVE)
    rate: float = tunable(0.05, "update rate of statistics", (0.005, 0.01, 0.05, 0.1, 0.5), FRACTION)
    follow: float = tunable(1e-3, "update rate of the teacher", (1e-4, 1e-3, 1e-2, 0.1), FRACTION)
    capacity: int = tunable(64, "samples in memory and between updates", (16, 32, 64, 128), integer(1))
    optimizer: str = tunable("adam", "adam, or sgd with momentum 0.9", limit=one_of(*OPTIMIZERS))
    seed: int = tunable(0, "random seed of the augmentations", limit=integer(0))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """Teacher and student, with an empty memory."""
        return _RoTTA(model, self)


class _RoTTA(Learner):
    _memory: BalancedMemory | None

    def __init__(self, model: nn.Module, config: RoTTA) -> None:
        self._config, self._teacher = config, Teacher(model, affine_parameters)
        super().__init__(model, affine_parameters, config.optimizer, config.lr)

    def adapt(self, batch: Any) -> Tensor:
        logits = self._teacher.logits(batch)
        memory = self._memory or BalancedMemory(self._config.capacity, logits.shape[1])
        memory = memory.copy()  # keep the old one if an update fails
        labels, uncertainties = logits.argmax(1).tolist(), entropies(logits).tolist()
        for index, (label, uncertainty) in enumerate(zip(labels, uncertainties, strict=True)):
            sample = map_tensors(Tensor.clone, map_tensors(itemgetter(index), batch))
            memory.add(sample, label, uncertainty)
            if memory.clock % memory.capacity == 0:
                self._update(memory)
        self._memory = memory
        return logits

    def _update(self, memory: BalancedMemory) -> None:
        samples = default_collate([item.sample for item in memory.items])
        generator = torch.Generator().manual_seed(self._config.seed + memory.clock)
        teacher, student = RobustStatistics(self._config.rate), RobustStatistics(self._config.rate)
        target = self._teacher.logits(samples, teacher).softmax(1)
        augmented = map_tensors(lambda images: strongly_augmented(images, generator), samples)
        log_p = self.forward(augmented, student).log_softmax(1)
        timeliness = torch.sigmoid(-torch.tensor(memory.ages()).to(log_p))
        self.descend((timeliness * -(target * log_p).sum(1)).mean())
        teacher.commit()
        student.commit()
        self._teacher.follow(self.parameters, self._config.follow)

    def reset(self) -> None:
        super().reset()
        self._memory = None
        self._teacher.reset()
        self._teacher.copy_statistics_to(self.model)
