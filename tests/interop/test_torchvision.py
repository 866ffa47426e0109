"""Networks of torchvision, randomly initialised."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import ttpfl
from tests.helpers.interop import CLASSES, Batch, check_all, needs

torchvision = needs("torchvision")
SMALL = {"image_size": 16, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
MAKE: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=CLASSES),
    "mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES),
    "shufflenet_v2_x0_5": lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=CLASSES),
    "vit": lambda: torchvision.models.VisionTransformer(num_classes=CLASSES, **SMALL),
}


def images(count: int) -> Batch:
    return torch.randn(count, 3, 16, 16)


@pytest.mark.parametrize("name", MAKE)
def test_network(name: str, tmp_path: Path) -> None:
    check_all(MAKE[name](), images, tmp_path)


def test_our_resnets_take_its_weights() -> None:
    theirs, ours = torchvision.models.resnet18(num_classes=CLASSES), ttpfl.models.resnet18(CLASSES)
    ours.load_state_dict(theirs.state_dict())
    x = images(4)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
