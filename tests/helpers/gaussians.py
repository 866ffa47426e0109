"""Three classes of points in the plane, and the classifier that is exactly calibrated on them."""

import torch
from torch import Tensor, nn

MEANS = torch.tensor([[2.0, 0.0], [-1.0, 1.5], [-1.0, -1.5]])


def classifier(prior: Tensor) -> nn.Module:
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(MEANS)
        model.bias.copy_(prior.log() - MEANS.square().sum(1) / 2)
    return model


def points(prior: Tensor, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.multinomial(prior, count, replacement=True, generator=draw)
    return MEANS[y] + torch.randn(count, 2, generator=draw), y
