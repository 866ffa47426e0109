"""ResNet-18 and ResNet-50 with torchvision's state dict keys, so that its weights can be loaded."""

from os import PathLike

import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.models.weights import load_backbone


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions with a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    """A projection if the shape changes, otherwise None."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Stem, four stages, global average pooling, linear classifier."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...], num_classes: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            blocks = []
            for index in range(depth):
                blocks.append(block(inputs, width, 2 if stage and not index else 1))
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        logits: Tensor = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


def resnet18(num_classes: int, weights: str | PathLike[str] | None = None) -> nn.Module:
    """ResNet-18 (He et al., 2016), with new weights or those of a local file.

    Args:
        num_classes: Size of the classifier.
        weights: A torchvision `.pth` or a safetensors file, float16 or float32. If its classifier is missing
            or has another size, the new one is kept.

    >>> import ttpfl
    >>> len(ttpfl.Rates.zeros(resnet18(10)).names)
    102
    """
    return load_backbone(ResNet(BasicBlock, (2, 2, 2, 2), num_classes), weights)


def resnet50(num_classes: int, weights: str | PathLike[str] | None = None) -> nn.Module:
    """ResNet-50 (stride in the 3x3 convolutions, as in torchvision); see `resnet18`.

    >>> sum(p.numel() for p in resnet50(1000).parameters())
    25557032
    """
    return load_backbone(ResNet(Bottleneck, (3, 4, 6, 3), num_classes), weights)
