"""The algorithm transcribed line by line, as in a research script.

The baseline for the library's benchmarks: BatchNorm layers whose statistics are parameters, a deep copy of
the state, and `load_state_dict` for every batch. Nothing is slowed down on purpose.
"""

import copy
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StatisticsBatchNorm(nn.Module):
    """BatchNorm in evaluation mode, with its statistics as parameters that get gradients."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().clone())
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.running_mean = nn.Parameter(layer.running_mean.clone())
        self.running_var = nn.Parameter(layer.running_var.clone())
        self.eps = layer.eps
        self.batch_mean = self.batch_var = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        dims = (0, *range(2, x.ndim))
        shape = (1, -1) + (1,) * (x.ndim - 2)
        with torch.no_grad():
            self.batch_mean, self.batch_var = x.mean(dims), x.var(dims)
        normal = (x - self.running_mean.view(shape)) / torch.sqrt(self.running_var.view(shape) + self.eps)
        return normal * self.weight.view(shape) + self.bias.view(shape)


def with_statistics(model: nn.Module) -> nn.Module:
    """A copy of the model with every BatchNorm layer replaced."""
    model = copy.deepcopy(model).eval()
    for path, layer in list(model.named_modules()):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, StatisticsBatchNorm(layer))
    return model


def direction(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Negative entropy gradient for parameters; batch minus stored value for statistics."""
    model.zero_grad()
    p = torch.softmax(model(x), 1)
    (-(p * torch.log(p + 1e-30)).sum(1).mean()).backward()
    h = {name: -parameter.grad for name, parameter in model.named_parameters()}
    for path, layer in model.named_modules():
        if isinstance(layer, StatisticsBatchNorm):
            h[f"{path}.running_mean"] = layer.batch_mean - layer.running_mean.detach()
            h[f"{path}.running_var"] = layer.batch_var - layer.running_var.detach()
    return h


def adapted(state: dict[str, Tensor], h: dict[str, Tensor], rates: dict[str, float]) -> dict[str, Tensor]:
    """w = w_G + alpha * h, with variances clamped at zero."""
    state = copy.deepcopy(state)
    for name in h:
        state[name] += rates[name] * h[name]
        if name.endswith("running_var"):
            state[name].clamp_(min=0)
    return state


def refine(
    model: nn.Module, rates: dict[str, float], batches: Iterable[tuple[Tensor, Tensor]], lr: float
) -> dict[str, float]:
    """Refine the rates over one client's batches; `model` comes from `with_statistics`."""
    rates = dict(rates)
    start = copy.deepcopy(model.state_dict())
    for x, y in batches:
        model.load_state_dict(start)
        h = direction(model, x)
        model.load_state_dict(adapted(start, h, rates))
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for name, parameter in model.named_parameters():
            slope = (h[name] * parameter.grad).sum() / parameter.numel() ** 0.5
            rates[name] -= lr * slope.item()
    model.load_state_dict(start)
    return rates


def predict(model: nn.Module, rates: dict[str, float], x: Tensor) -> Tensor:
    """Batch mode: adapt to x, then predict."""
    start = copy.deepcopy(model.state_dict())
    model.load_state_dict(adapted(start, direction(model, x), rates))
    with torch.no_grad():
        logits = model(x)
    model.load_state_dict(start)
    return logits
