"""A small network for tables, with one number per feature."""

from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 64


class MLP(nn.Module):
    """Two hidden layers with batch normalisation, and a linear classifier."""

    def __init__(self, num_classes: int, features: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(features, WIDTH)
        self.bn1 = nn.BatchNorm1d(WIDTH)
        self.linear2 = nn.Linear(WIDTH, WIDTH)
        self.bn2 = nn.BatchNorm1d(WIDTH)
        self.linear3 = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of rows."""
        x = F.relu(self.bn1(self.linear1(x.flatten(1))))
        x = F.relu(self.bn2(self.linear2(x)))
        logits: Tensor = self.linear3(x)
        return logits


def mlp(num_classes: int, input_shape: tuple[int, ...] = (16,)) -> nn.Module:
    """A network for tables; samples of any shape are flattened.

    >>> import torch
    >>> mlp(2, (13,))(torch.zeros(4, 13)).shape
    torch.Size([4, 2])
    """
    return MLP(num_classes, prod(input_shape))
