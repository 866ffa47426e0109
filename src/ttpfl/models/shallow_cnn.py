"""The paper's shallow network for small images."""

import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.errors import ModelError


class ShallowCNN(nn.Module):
    """Three convolutions and two linear layers, with batch normalisation in between."""

    def __init__(self, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        side = ((image_size - 2) // 2 - 2) // 2 - 2
        if side < 1:
            raise ModelError(f"image_size is {image_size}: the shallow CNN needs 18 or more")
        self.conv1 = nn.Conv2d(in_channels, 32, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, bias=False)
        self.bn2 = nn.BatchNorm2d(64)
        self.conv3 = nn.Conv2d(64, 64, 3, bias=False)
        self.bn3 = nn.BatchNorm2d(64)
        self.linear4 = nn.Linear(64 * side * side, 64)
        self.bn4 = nn.BatchNorm1d(64)
        self.linear5 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        # ReLU and max pooling commute exactly; pooling first quarters the work of ReLU.
        x = F.relu(F.max_pool2d(self.bn1(self.conv1(x)), 2))
        x = F.relu(F.max_pool2d(self.bn2(self.conv2(x)), 2))
        x = F.relu(self.bn3(self.conv3(x))).flatten(1)
        x = F.relu(self.bn4(self.linear4(x)))
        logits: Tensor = self.linear5(x)
        return logits


def shallow_cnn(num_classes: int, in_channels: int = 3, image_size: int = 32) -> nn.Module:
    """The paper's shallow CNN, with new weights.

    >>> import torch
    >>> shallow_cnn(10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return ShallowCNN(num_classes, in_channels, image_size)
