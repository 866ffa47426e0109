"""Optimizers equal to those of `torch.optim`, whose first use in a process takes two seconds."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ttpfl.errors import MethodError
from ttpfl.util.settings_kit import find
from ttpfl.util.sgd import SGD

MOMENTUM = 0.9


class Optimizer(Protocol):
    """Updates parameters in place."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Take one step."""


class Adam:
    """Adam (Kingma and Ba, 2015) with the usual constants."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.parameters, self.lr = parameters, lr
        self._means = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self._squares = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Take one step."""
        self._steps += 1
        first, second = 1 - 0.9**self._steps, 1 - 0.999**self._steps
        moments = zip(self.parameters, self._means, self._squares, gradients, strict=True)
        for parameter, mean, square, gradient in moments:
            mean.lerp_(gradient, 1 - 0.9)
            square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
            parameter.addcdiv_(mean, (square / second).sqrt_().add_(1e-8), value=-self.lr / first)


OPTIMIZERS: dict[str, Callable[[Sequence[Tensor], float], Optimizer]] = {
    "adam": Adam,
    "sgd": partial(SGD, momentum=MOMENTUM),
}


def optimizer(kind: str, parameters: Sequence[Tensor], lr: float) -> Optimizer:
    """Create an optimizer by name.

    >>> optimizer("sdg", [], 0.1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: unknown optimizer 'sdg'; did you mean 'sgd'? Available: adam, sgd
    """
    return find("optimizer", kind, OPTIMIZERS, MethodError)(parameters, lr)
