"""Fast paths against the slow, obvious implementation, on networks of many kinds."""

import pytest
import torch
from torch import nn

import ttpfl
from tests.helpers.networks import NETWORKS, batches, make, some_rates
from tests.helpers.reference import Reference
from ttpfl.core.direction import entropy, probe
from ttpfl.core.inputs import Inputs
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin, isolated

DOUBLE = 1e-9
SINGLE = 1e-4  # of the largest value; float32 against float64
SEEDS = {"bottleneck": 1}
"""With seed 0, an input of a ReLU is so close to zero that its sign depends on the processor's rounding."""


def worst(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours.double() - theirs).abs().max() / theirs.abs().max()).item()


def as_dict(rates: Rates) -> dict[str, float]:
    return dict(zip(rates.names, rates.values.tolist(), strict=True))


def in_double(model: nn.Module, name: str) -> tuple[nn.Module, list, Rates]:
    data = [(x.double(), y) for x, y in batches(name)]
    rates = some_rates(model)
    rates.values = rates.values.double()
    return model.double(), data, rates


@pytest.mark.parametrize("name", NETWORKS)
def test_directions(name: str) -> None:
    model = make(name)
    reference = Reference(model).direction(batches(name)[0][0])
    model, data, rates = in_double(model, name)
    with isolated():
        direction = probe(Twin(model, rates.modules), Inputs((data[0][0],), {}), entropy).direction
    assert direction.keys() == reference.keys()
    largest = max(h.abs().max() for h in reference.values())
    for module, change in direction.items():
        assert (change.whole() - reference[module]).abs().max() < DOUBLE * largest


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_refinement(name: str, mode: str) -> None:
    model = make(name, SEEDS.get(name, 0))
    rates = some_rates(model)
    reference = Reference(model).refine(as_dict(rates), batches(name), lr=0.1, online=mode == "online")
    expected = torch.tensor([reference[n] for n in rates.names]).double() - rates.values.double()

    single = ttpfl.refine_rates(model, rates, batches(name), lr=0.1, mode=mode)
    assert single.values.dtype == torch.float32
    assert worst(single.values.double() - rates.values.double(), expected) < 1e-3

    model, data, rates = in_double(model, name)
    double = ttpfl.refine_rates(model, rates, data, lr=0.1, mode=mode)
    exact = torch.tensor([reference[n] for n in rates.names], dtype=torch.float64) - rates.values
    assert worst(double.values - rates.values, exact) < DOUBLE


@pytest.mark.parametrize("name", NETWORKS)
def test_slope_is_the_derivative_of_the_loss(name: str) -> None:
    """One refinement step of size lr moves each rate by the finite difference of the loss."""
    model = make(name)
    reference = Reference(model)
    model, data, rates = in_double(model, name)
    x, y = data[0]
    h = reference.direction(x)
    start = as_dict(rates)
    moved = ttpfl.refine_rates(model, rates, [(x, y)], lr=1.0).values - rates.values
    largest = moved.abs().max()
    some = range(0, len(rates.names), max(1, len(rates.names) // 12))
    for index in some:
        module = rates.names[index]
        difference = reference.slope_by_differences(x, y, h, start, module)
        expected = -difference / reference.start[module].numel() ** 0.5
        # The difference of two losses over 2e-8 is itself rounded to about 1e-8.
        assert abs(moved[index] - expected) < 1e-6 * largest + 1e-8


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_predictions(name: str, mode: str) -> None:
    model = make(name, SEEDS.get(name, 0))
    rates = some_rates(model)
    stream = [x for x, _ in batches(name)]
    expected = Reference(model).predict(stream, as_dict(rates), online=mode == "online")
    single = ttpfl.Personalizer(model, rates, mode)
    for x, logits in zip(stream, expected, strict=True):
        assert worst(single(x), logits) < SINGLE
    model, data, rates = in_double(model, name)
    double = ttpfl.Personalizer(model, rates, mode)
    for (x, _), logits in zip(data, expected, strict=True):
        assert worst(double(x), logits) < DOUBLE


@pytest.mark.parametrize("granularity", ["layer", "block", "kind"])
@pytest.mark.parametrize("only", [None, "params", "stats"])
def test_shared_rates_are_normalised_by_their_total_size(granularity: str, only: str | None) -> None:
    model = make("cnn")
    reference = Reference(model)
    rates = some_rates(model, granularity=granularity, only=only)
    rates.values = rates.values.double()
    x, y = batches("cnn")[0]
    h = reference.direction(x)
    by_module = dict.fromkeys(reference.start, 0.0)
    for value, members in zip(rates.values.tolist(), rates.members.values(), strict=True):
        by_module |= dict.fromkeys(members, value)
    slope = reference.slope(x, y, h, by_module)
    expected = [
        -sum(slope[n] for n in members) / sum(reference.start[n].numel() for n in members) ** 0.5
        for members in rates.members.values()
    ]
    moved = ttpfl.refine_rates(model.double(), rates, [(x.double(), y)], lr=1.0).values - rates.values
    assert worst(moved, torch.tensor(expected, dtype=torch.float64)) < DOUBLE
