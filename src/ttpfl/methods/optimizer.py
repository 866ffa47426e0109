"""Small optimizers for methods that take a step per batch.

They compute what those of `torch.optim` do, whose first use in a process takes two seconds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ttpfl.errors import MethodError
from ttpfl.util.sgd import SGD

MOMENTUM = 0.9


class Optimizer(Protocol):
    """Changes parameters in place, given their gradients."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step down the gradients."""


class Adam:
    """Adam (Kingma and Ba, 2015) with its usual constants."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.parameters, self.lr = parameters, lr
        self._means = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self._squares = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Along the mean gradient, each number at the scale of its own mean square."""
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
    """An optimizer by its name.

    >>> optimizer("sdg", [], 0.1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: there is no optimizer 'sdg'; known: adam, sgd
    """
    if kind not in OPTIMIZERS:
        raise MethodError(f"there is no optimizer {kind!r}; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[kind](parameters, lr)
