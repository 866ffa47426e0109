"""A small network for signals: acceleration, heartbeats and other series of numbers."""

import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.errors import ModelError

SHORTEST = 8  # samples in time: three halvings


class SignalCNN(nn.Module):
    """Three 1-D convolutions with batch normalisation, the mean over time, and a linear classifier."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(input_shape) != 2 or input_shape[1] < SHORTEST:
            raise ModelError(
                f"samples have shape {tuple(input_shape)}: the signal CNN needs (channels, time) with at "
                f"least {SHORTEST} values in time"
            )
        self.conv1 = nn.Conv1d(input_shape[0], 32, 9, padding=4, bias=False)
        self.bn1 = nn.BatchNorm1d(32)
        self.conv2 = nn.Conv1d(32, 64, 9, padding=4, bias=False)
        self.bn2 = nn.BatchNorm1d(64)
        self.conv3 = nn.Conv1d(64, 64, 9, padding=4, bias=False)
        self.bn3 = nn.BatchNorm1d(64)
        self.linear = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of signals."""
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool1d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.max_pool1d(F.relu(self.bn3(self.conv3(x))), 2)
        logits: Tensor = self.linear(x.mean(2))
        return logits


def signal_cnn(num_classes: int, input_shape: tuple[int, ...] = (1, 128)) -> nn.Module:
    """A 1-D CNN for signals (channels, time) of any length, with new weights.

    >>> import torch
    >>> signal_cnn(6, (3, 128))(torch.zeros(2, 3, 128)).shape
    torch.Size([2, 6])
    """
    return SignalCNN(num_classes, input_shape)
