"""The image encoder of an OpenCLIP model with a linear classifier."""

from pathlib import Path

import torch
from torch import Tensor, nn

from tests.helpers.interop import CLASSES, Batch, check_all, needs

open_clip = needs("open_clip")
WIDTH = 16
VISION = {"image_size": 16, "patch_size": 8, "width": 16, "layers": 2, "head_width": 8}
TEXT = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}


class Classifier(nn.Module):
    """Only what sees the image, so that the text encoder has no rates."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = clip.visual, nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))


def images(count: int) -> Batch:
    return torch.randn(count, 3, 16, 16)


def test_encoder_with_a_classifier(tmp_path: Path) -> None:
    clip = open_clip.CLIP(WIDTH, open_clip.CLIPVisionCfg(**VISION), open_clip.CLIPTextCfg(**TEXT))
    check_all(Classifier(clip), images, tmp_path)
