"""Stochastic gradient descent, bit for bit like `torch.optim.SGD`.

Creating the first `torch.optim` optimizer in a process takes seconds and 75 MB for imports not needed here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """Updates parameters in place, given their gradients.

    >>> parameter = torch.tensor([1.0])
    >>> SGD([parameter], lr=0.1, weight_decay=1.0).step([torch.tensor([2.0])])
    >>> parameter
    tensor([0.7000])
    """

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self.parameters, self.lr, self.momentum, self.weight_decay = parameters, lr, momentum, weight_decay
        self._velocity: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Take one step; parameters without a gradient stay unchanged."""
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            if self.weight_decay:
                gradient = gradient.add(parameter, alpha=self.weight_decay)
            if self.momentum:
                old = self._velocity[index]
                gradient = gradient.clone() if old is None else old.mul_(self.momentum).add_(gradient)
                self._velocity[index] = gradient
            parameter.add_(gradient, alpha=-self.lr)
