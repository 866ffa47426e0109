"""Networks of many kinds, small enough for tests, with weights that are not those of a fresh start."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttpfl
from ttpfl.models.resnet import BasicBlock, Bottleneck, ResNet

CLASSES = 5


class GroupNormNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(4, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


class SmallViT(nn.Module):
    def __init__(self, size: int = 16, patch: int = 4, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.1)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, 2, 32, 0.1, "gelu", batch_first=True, norm_first=True)
                for _ in range(2)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)
    )


class ViewNet(nn.Module):
    """Flattens feature maps with `view`, as many networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        return self.head(x.view(x.size(0), -1))


def image(size: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, 3, size, size)


# name -> (factory, inputs of a given batch size)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "cnn": (lambda: ttpfl.models.shallow_cnn(CLASSES), image(32)),
    "cnn18": (lambda: ttpfl.models.shallow_cnn(CLASSES, image_size=18), image(18)),
    "resnet": (lambda: ResNet(BasicBlock, (1, 1, 1, 1), CLASSES), image(32)),
    "bottleneck": (lambda: ResNet(Bottleneck, (1, 1, 1, 1), CLASSES), image(32)),
    "groupnorm": (GroupNormNet, image(10)),
    "vit": (SmallViT, image(16)),
    "mlp": (mlp, lambda batch: torch.randn(batch, 6)),
    "view": (ViewNet, image(8)),
}


def make(name: str, seed: int = 0) -> nn.Module:
    """A network that has seen a few training steps."""
    torch.manual_seed(seed)
    factory, inputs = NETWORKS[name]
    model = factory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(inputs(16)), torch.randint(CLASSES, (16,))).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():  # settle the running statistics, or deep networks amplify rounding errors
        for _ in range(25):
            model(inputs(16))
    return model.eval()


def frozen(name: str, seed: int = 0) -> nn.Module:
    """The same, and nothing computed with it has a gradient."""
    return make(name, seed).requires_grad_(False)


def batches(name: str, count: int = 3, size: int = 8, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(seed)
    inputs = NETWORKS[name][1]
    return [(inputs(size) * 1.3 + 0.2, torch.randint(CLASSES, (size,))) for _ in range(count)]


def some_rates(model: nn.Module, scale: float = 0.05, **kwargs: object) -> ttpfl.Rates:
    rates = ttpfl.Rates.zeros(model, **kwargs)
    generator = torch.Generator().manual_seed(7)
    rates.values = scale * torch.randn(len(rates.names), generator=generator)
    return rates
