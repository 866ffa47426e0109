"""Fast paths against the slow, obvious implementation, on networks of many kinds."""

import pytest
import torch
import torch.nn.functional as F
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


@pytest.fixture
def smooth(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kinks: where the input of a ReLU is close to zero, the gradient depends on rounding."""
    monkeypatch.setattr(F, "relu", F.silu)
    monkeypatch.setattr(F, "max_pool2d", F.avg_pool2d)


def worst(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours.double() - theirs).abs().max() / theirs.abs().max()).item()


def as_dict(rates: Rates) -> dict[str, float]:
    return dict(zip(rates.names, rates.values.tolist(), strict=True))


def moves(refined: Rates | dict[str, float], start: dict[str, float]) -> torch.Tensor:
    values = refined if isinstance(refined, dict) else as_dict(refined)
    return torch.tensor([values[name] - start[name] for name in start], dtype=torch.float64)


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
    model = make(name)
    reference, start = Reference(model), as_dict(some_rates(model))
    expected = reference.refine(start, batches(name), lr=0.1, online=mode == "online")
    model, data, rates = in_double(model, name)
    refined = ttpfl.refine_rates(model, rates, data, lr=0.1, mode=mode)
    assert worst(moves(refined, start), moves(expected, start)) < DOUBLE


@pytest.mark.usefixtures("smooth")
@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_refinement_in_single_precision(name: str, mode: str) -> None:
    model = make(name)
    rates = some_rates(model)
    expected = Reference(model).refine(as_dict(rates), batches(name), lr=0.1, online=mode == "online")
    refined = ttpfl.refine_rates(model, rates, batches(name), lr=0.1, mode=mode)
    assert refined.values.dtype == torch.float32
    assert worst(moves(refined, as_dict(rates)), moves(expected, as_dict(rates))) < 1e-3


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
    model = make(name)
    reference = Reference(model)
    model, data, rates = in_double(model, name)
    expected = reference.predict([x for x, _ in data], as_dict(rates), online=mode == "online")
    personalizer = ttpfl.Personalizer(model, rates, mode)
    for (x, _), logits in zip(data, expected, strict=True):
        assert worst(personalizer(x), logits) < DOUBLE


@pytest.mark.usefixtures("smooth")
@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_predictions_in_single_precision(name: str, mode: str) -> None:
    model = make(name)
    rates = some_rates(model)
    stream = [x for x, _ in batches(name)]
    expected = Reference(model).predict(stream, as_dict(rates), online=mode == "online")
    personalizer = ttpfl.Personalizer(model, rates, mode)
    for x, logits in zip(stream, expected, strict=True):
        assert worst(personalizer(x), logits) < SINGLE


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
