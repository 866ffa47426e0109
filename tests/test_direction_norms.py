"""Norms of directions against the slow float64 implementation."""

import math

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers.reference import Reference
from tests.helpers.untouched import untouched
from ttpfl.core.direction_norms import direction_norms
from ttpfl.core.rates import Rates
from ttpfl.core.selection import Granularity


@pytest.fixture
def model() -> nn.Module:
    return ttpfl.models.shallow_cnn(num_classes=4)


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(6, 3, 32, 32) * scale, torch.zeros(6)) for scale in (1.0, 3.0, 0.5)]


@pytest.mark.parametrize("granularity", ["tensor", "block"])
def test_the_longest_direction_of_each_rate(
    granularity: Granularity, model: nn.Module, batches: list[tuple[Tensor, Tensor]]
) -> None:
    rates = Rates.zeros(model, granularity=granularity)
    with untouched(model):
        found = direction_norms(model, iter(batches), rates)
    directions = [Reference(model).direction(x) for x, _ in batches]
    assert tuple(found) == rates.names
    for name, members in rates.members.items():
        lengths = [math.sqrt(sum(float(h[m].square().sum()) for m in members)) for h in directions]
        assert found[name] == pytest.approx(max(lengths), rel=1e-3, abs=1e-6)


def test_means_of_directions_are_not_longer(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
    """So H holds for online adaptation as well."""
    rates = Rates.zeros(model)
    personal = ttpfl.Personalizer(model, rates.with_values(torch.full_like(rates.values, 1e-3)), "online")
    longest = direction_norms(model, batches)
    for x, _ in batches:
        personal(x)
    state = personal.state_dict()
    for name, norm in longest.items():
        assert float(state[f"mean.{name}"].norm()) <= norm * (1 + 1e-5)


def test_batches_that_cannot_be_used(model: nn.Module) -> None:
    with pytest.raises(ttpfl.BatchError, match="no batches: pass at least one"):
        direction_norms(model, [])
    good, bad = torch.zeros(2, 3, 32, 32), torch.full((2, 3, 32, 32), math.nan)
    with pytest.raises(ttpfl.BatchError, match="NaN or Inf in sample 0") as caught:
        direction_norms(model, [(good, torch.zeros(2)), (bad, torch.zeros(2))])
    assert caught.value.__notes__ == ["in batch 1"]


def test_a_direction_that_overflows_is_named() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, 2))
    with torch.no_grad():
        model[1].weight.fill_(0)
    huge = torch.tensor([[3e38], [-3e38]])
    with pytest.raises(ttpfl.BatchError, match=r"the direction of '0\.running_var' is not finite"):
        direction_norms(model, [(huge, torch.zeros(2))])
