"""Blocks as in resnet10t and mobilenetv3: rates stay finite, or learning ends with a clear error."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttpfl

CLASSES = 4


def conv(inside: int, outside: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False)


class Residual(nn.Module):
    """Its last BatchNorm begins with gamma = 0, so that the block begins as its shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(conv(inside, outside, stride=stride), nn.BatchNorm2d(outside), nn.ReLU())
        self.second = nn.Sequential(conv(outside, outside), nn.BatchNorm2d(outside))
        nn.init.zeros_(self.second[1].weight)
        self.shortcut = nn.Sequential(nn.AvgPool2d(stride), conv(inside, outside, 1), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """Expand, filter each channel, weigh channels, project; the shortcut goes around."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(channels, wide, 1),
            nn.BatchNorm2d(wide, eps=1e-3),
            nn.Hardswish(),
            conv(wide, wide, 5, groups=wide),
            nn.BatchNorm2d(wide, eps=1e-3),
            nn.Hardswish(),
            SqueezeExcite(wide),
            conv(wide, channels, 1),
            nn.BatchNorm2d(channels, eps=1e-3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def resnet_t() -> nn.Sequential:
    stem = [conv(3, 8, stride=2), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 12), nn.BatchNorm2d(12), nn.ReLU()]
    stem += [conv(12, 16), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Residual(16, 16, 1), Residual(16, 32, 2), *head(32))


def mobilenet() -> nn.Sequential:
    stem = [conv(3, 8, stride=2), nn.BatchNorm2d(8, eps=1e-3), nn.Hardswish()]
    return nn.Sequential(*stem, Inverted(8, 24), Inverted(8, 24), conv(8, 32, 1), nn.Hardswish(), *head(32))


def site(seed: int, samples: int = 20) -> tuple[Tensor, Tensor]:
    """Classes are colours under noise; each site is darker or brighter than others."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (samples,), generator=random)
    colours = torch.randn(CLASSES, 3, 1, 1, generator=torch.Generator().manual_seed(9))
    return (seed + 1) * 0.5 + colours[y] + torch.randn(samples, 3, 24, 24, generator=random), y


def barely_trained(model: nn.Module) -> None:
    """Three steps: running statistics are still far from those of the data."""
    x, y = site(5, 32)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x), y).backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore::ttpfl.RatesWarning")
@pytest.mark.parametrize("steps", [False, True], ids=["fresh", "barely trained"])
@pytest.mark.parametrize("network", [resnet_t, mobilenet])
@pytest.mark.parametrize("lr", [0.02, 0.5, 20.0])
def test_rates_are_finite_or_refused(network: Callable[[], nn.Module], steps: bool, lr: float) -> None:
    """A loss that was not finite in round 0 made rates NaN."""
    torch.manual_seed(0)
    model = network()
    if steps:
        barely_trained(model)
    history: list[dict[str, float]] = []
    rates, refused = ttpfl.Rates.zeros(model), ""
    try:
        rates = ttpfl.learn_rates(
            model.eval(), [site(0), site(1)], rounds=3, lr=lr, batch_size=10, progress=history.append
        )
    except ttpfl.RatesError as error:
        refused = str(error)
    assert not refused or (lr > 0.02 and f"lower lr (it is {lr:g})" in refused)
    assert torch.isfinite(rates.values).all()
    assert all(torch.tensor(list(record.values())).isfinite().all() for record in history)
    assert torch.isfinite(ttpfl.Personalizer(model, rates)(site(3)[0])).all()
