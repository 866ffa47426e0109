"""Small networks for signals: acceleration, heartbeats and other series of numbers."""

import torch
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

    def features(self, x: Tensor) -> Tensor:
        """64 numbers for each signal, whatever its length."""
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool1d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.max_pool1d(F.relu(self.bn3(self.conv3(x))), 2)
        return x.mean(2)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of signals."""
        logits: Tensor = self.linear(self.features(x))
        return logits


class BeatCNN(SignalCNN):
    """A signal CNN with a second input: numbers that belong to the whole signal.

    They are the last channels of a sample, constant in time, so that a sample is one array everywhere else.
    They skip the convolutions: a small layer of their own meets the features of the signal at the classifier.
    """

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], numbers: int) -> None:
        if not 0 < numbers < input_shape[0]:
            raise ModelError(
                f"samples have shape {tuple(input_shape)}: with {numbers} constant channels, the beat CNN "
                f"needs at least {numbers + 1}; the data set ecg has them with the option rr=true"
            )
        super().__init__(num_classes, (input_shape[0] - numbers, *input_shape[1:]))
        del self.linear  # so that the classifier is the last layer, where methods look for it
        self.numbers = nn.Linear(numbers, 16)
        self.bn4 = nn.BatchNorm1d(16)
        self.linear = nn.Linear(64 + 16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of signals with their numbers."""
        signal, constant = x.tensor_split([-self.numbers.in_features], dim=1)
        numbers = F.relu(self.bn4(self.numbers(constant[:, :, 0])))
        logits: Tensor = self.linear(torch.cat([self.features(signal), numbers], 1))
        return logits


def beat_cnn(num_classes: int, input_shape: tuple[int, ...] = (3, 128), numbers: int = 2) -> nn.Module:
    """A 1-D CNN with two inputs: signals, and numbers such as the intervals before and after a heartbeat.

    The last `numbers` channels of a sample are constant in time and hold the numbers, as `ecg` has them with
    the option `rr=true`.

    >>> import torch
    >>> beat_cnn(4, (3, 128))(torch.zeros(2, 3, 128)).shape
    torch.Size([2, 4])
    """
    return BeatCNN(num_classes, input_shape, numbers)


def signal_cnn(num_classes: int, input_shape: tuple[int, ...] = (1, 128)) -> nn.Module:
    """A 1-D CNN for signals (channels, time) of any length, with new weights.

    >>> import torch
    >>> signal_cnn(6, (3, 128))(torch.zeros(2, 3, 128)).shape
    torch.Size([2, 6])
    """
    return SignalCNN(num_classes, input_shape)
