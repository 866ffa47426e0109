"""A network for the files of earlier versions.

Do not change this file, not even a space: stages of an experiment are kept under a hash of it.
"""

from torch import nn


def make(num_classes: int, image_size: int) -> nn.Module:
    side = image_size - 2
    return nn.Sequential(
        nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * side**2, num_classes)
    )
