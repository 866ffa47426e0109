"""Stochastic gradient descent, to the bit that of `torch.optim.SGD`.

The first optimizer of `torch.optim` in a process imports for seconds, and 75 MB, what is not needed here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """Changes parameters in place, given their gradients.

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
        """One step down the gradients; parameters without one stay."""
        for place, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            if self.weight_decay:
                gradient = gradient.add(parameter, alpha=self.weight_decay)
            if self.momentum:
                gradient = self._followed(place, gradient)
            parameter.add_(gradient, alpha=-self.lr)

    def _followed(self, place: int, gradient: Tensor) -> Tensor:
        """The velocity, after it took up the gradient."""
        velocity = self._velocity[place]
        velocity = gradient.clone() if velocity is None else velocity.mul_(self.momentum).add_(gradient)
        self._velocity[place] = velocity
        return velocity
