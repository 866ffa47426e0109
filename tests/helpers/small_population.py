"""A small population over made images, and an untrained network for it."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ttpfl import data, models
from ttpfl.data.images import Images


def made_images() -> Images:
    random = np.random.default_rng(0)
    y = np.arange(1200) % 10
    x = (random.integers(80, size=(1200, 28, 28, 3)) + 17 * y[:, None, None, None]).astype(np.uint8)
    return Images(x, y, np.zeros(1200, np.int64), data.dataset_info("fashion-mnist"))


def population(images: Images, folder: Path) -> data.Federated:
    return data.federate(images, data_dir=folder, shift="label", source_clients=4, target_clients=3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return models.shallow_cnn(10, image_size=28).eval()


class Tempered(nn.Module):
    """Logits at a temperature, which is no weight."""

    def __init__(self, inner: nn.Module, temperature: float) -> None:
        super().__init__()
        self.inner, self.temperature = inner, temperature

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x) / self.temperature
        return logits
