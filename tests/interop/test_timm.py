"""Networks of timm, randomly initialised."""

from pathlib import Path

import pytest
import torch

from tests.helpers.interop import CLASSES, check_all, needs

timm = needs("timm")
NAMES = ["resnet10t", "mobilenetv3_small_050", "efficientnet_b0", "vit_tiny_patch16_224", "convnext_atto"]


def images(side: int) -> "callable":
    return lambda count: torch.randn(count, 3, side, side)


@pytest.mark.parametrize("name", NAMES)
def test_network(name: str, tmp_path: Path) -> None:
    size = {"img_size": 32} if name.startswith("vit") else {}
    check_all(timm.create_model(name, num_classes=CLASSES, **size), images(32), tmp_path)
