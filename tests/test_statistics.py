"""Running statistics: rules, gradients, and the layers that are out of the ordinary."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttpfl
from tests.helpers.untouched import untouched
from ttpfl.core import statistics
from ttpfl.core.direction import Direction, entropy, probe
from ttpfl.core.inputs import Inputs
from ttpfl.core.twin import Twin, isolated


def direction_of(model: nn.Module, x: Tensor) -> Direction:
    with isolated():
        return probe(Twin(model, ttpfl.Rates.zeros(model).modules), Inputs((x,), {}), entropy).direction


def check_by_differences(
    model: nn.Module, rates: ttpfl.Rates, h: Direction, batch: tuple[Tensor, Tensor], moved: Tensor
) -> None:
    """`moved`, a step of size 1, is what finite differences of the adapted model's loss say."""
    x, y = batch

    def loss(alpha: Tensor) -> Tensor:
        with torch.no_grad():
            adapted = copy.deepcopy(model)
            state = {k: v.clone() for k, v in model.state_dict().items()}
            for rate, name in zip(alpha, rates.names, strict=True):
                state[name] += rate * h[name].whole()
            adapted.load_state_dict(state)
            return F.cross_entropy(adapted(x), y)

    for i, name in enumerate(rates.names):
        step = torch.zeros_like(rates.values)
        step[i] = 1e-7
        difference = (loss(rates.values + step) - loss(rates.values - step)) / 2e-7
        expected = -difference / model.state_dict()[name].numel() ** 0.5
        assert moved[i].item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (8, 3, 4, 4), (4, 3, 2, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
def test_gradient_of_running_statistics(shape: tuple[int, ...], affine: bool) -> None:
    def leaf(*size: int) -> Tensor:
        return torch.rand(size, dtype=torch.float64).add(0.5).requires_grad_()

    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    mean, var = leaf(3), leaf(3)
    weight, bias = (leaf(3), leaf(3)) if affine else (None, None)
    ours = statistics.batch_norm(x, mean, var, weight, bias, eps=1e-3)
    view = (1, 3) + (1,) * (len(shape) - 2)
    plain = (x - mean.view(view)) / (var.view(view) + 1e-3).sqrt()
    if affine:
        plain = plain * weight.view(view) + bias.view(view)
    torch.testing.assert_close(ours, plain)
    leaves = [x, mean, var] + ([weight, bias] if affine else [])
    for a, b in zip(
        torch.autograd.grad(ours.sin().sum(), leaves),
        torch.autograd.grad(plain.sin().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_batch_norm_keeps_its_bits() -> None:
    layer = nn.BatchNorm2d(4).eval()
    nn.init.normal_(layer.weight), nn.init.normal_(layer.bias), nn.init.uniform_(layer.running_var)
    x = torch.randn(5, 4, 3, 3)
    mean, var = layer.running_mean.clone().requires_grad_(), layer.running_var.clone().requires_grad_()
    assert torch.equal(statistics.batch_norm(x, mean, var, layer.weight, layer.bias), layer(x))


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 7), (6, 3, 5, 4)])
def test_batch_moments(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape) * 3 + 50
    mean, var = statistics.batch_moments(nn.BatchNorm1d(3), x)
    flat = x.double().movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(mean.double(), flat.mean(0), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(var.double(), flat.var(0), rtol=1e-5, atol=1e-6)


def test_a_single_value_has_no_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    h = direction_of(model, torch.randn(1, 3))
    assert not h["1.running_mean"].value.any()
    assert not h["1.running_var"].value.any()
    assert h["0.weight"].value.any()


def test_running_variances_are_clamped_at_zero() -> None:
    """A rate above one overshoots below zero; the clamped variance is what predicts and what counts
    in the refinement, whose gradient is taken at the clamped value."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double().eval()
    model[1].running_var.fill_(30.0)
    x, y = torch.randn(10, 4, dtype=torch.float64), torch.randint(3, (10,))
    rates = ttpfl.Rates.zeros(model)
    index = rates.names.index("1.running_var")
    rates.values = rates.values.double()
    rates.values[index] = 1.5

    hidden = model[0](x).detach()
    h = hidden.var(0) - 30.0
    assert (30.0 + 1.5 * h < 0).all()
    var = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    layer = model[1]
    scaled = (hidden - layer.running_mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias
    logits = model[3](scaled.relu())
    assert torch.allclose(ttpfl.Personalizer(model, rates)(x), logits)

    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y), var)
    expected = -((h * gradient).sum() / 6**0.5).item()
    moved = ttpfl.refine_rates(model, rates, [(x, y)], lr=1e-6).values[index] - 1.5
    assert moved.item() == pytest.approx(1e-6 * expected, rel=1e-9)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.head(self.norm(self.inside(x).relu()))


def test_a_layer_called_twice() -> None:
    """Its batch statistic is the mean over the calls, and gradients add up over them."""
    model = Twice().double().eval()
    x, y = torch.randn(9, 4, dtype=torch.float64) + 1, torch.randint(3, (9,))
    second = model.inside(model.norm(x)).relu().detach()
    h = direction_of(model, x)
    torch.testing.assert_close(h["norm.running_mean"].value, (x.mean(0) + second.mean(0)) / 2)
    torch.testing.assert_close(h["norm.running_var"].value, (x.var(0) + second.var(0)) / 2 - 1)

    rates = ttpfl.Rates.zeros(model)
    rates.values = rates.values.double() + 0.1
    moved = ttpfl.refine_rates(model, rates, [(x, y)], lr=1.0).values - rates.values

    check_by_differences(model, rates, h, (x, y), moved)


def unusual(kind: str) -> nn.Module:
    norm = {
        "no affine": nn.BatchNorm2d(4, affine=False),
        "frozen affine": nn.BatchNorm2d(4).requires_grad_(False),
        "no statistics": nn.BatchNorm2d(4, track_running_stats=False),
        "instance norm": nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        "plain instance norm": nn.InstanceNorm2d(4, affine=True),
    }[kind]
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    with torch.no_grad():
        for _ in range(5):
            model.train()(torch.randn(8, 3, 6, 6))
    return model.double().eval()


@pytest.mark.parametrize(
    "kind", ["no affine", "frozen affine", "no statistics", "instance norm", "plain instance norm"]
)
def test_unusual_normalisation(kind: str) -> None:
    """Slopes agree with finite differences of the loss of the exported, adapted model."""
    model = unusual(kind)
    x, y = torch.randn(7, 3, 6, 6, dtype=torch.float64) + 0.5, torch.randint(3, (7,))
    rates = ttpfl.Rates.zeros(model)
    assert any("running" in name for name in rates.names) == (
        kind not in ("no statistics", "plain instance norm")
    )
    rates.values = rates.values.double() + 0.05
    with untouched(model):
        moved = ttpfl.refine_rates(model, rates, [(x, y)], lr=1.0).values - rates.values
        h = direction_of(model, x)

    check_by_differences(model, rates, h, (x, y), moved)
    exported = unusual(kind)
    with untouched(model):
        personal = ttpfl.Personalizer(model, rates, "online")
        logits = personal(x)
        exported.load_state_dict(personal.adapted_state_dict())
        torch.testing.assert_close(logits, exported(x).detach())


def test_instance_statistics() -> None:
    x = torch.randn(6, 3, 5, 4)
    mean, var = statistics.instance_moments(nn.InstanceNorm2d(3), x)
    torch.testing.assert_close(mean, x.mean((2, 3)).mean(0))
    torch.testing.assert_close(var, x.var((2, 3)).mean(0))


class ScaleNorm(nn.Module):
    """A user's own layer: divides by a running mean of absolute values."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("running_scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return x / (self.running_scale + 1e-3)


def test_a_rule_for_a_layer_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_RULES", dict(statistics._RULES))
    model = nn.Sequential(nn.Linear(3, 4), ScaleNorm(4), nn.Linear(4, 2)).double().eval()
    assert "1.running_scale" not in ttpfl.Rates.zeros(model).names

    @ttpfl.statistics_rule(ScaleNorm, buffers=("running_scale",), nonnegative=("running_scale",))
    def scale(layer: nn.Module, x: Tensor) -> tuple[Tensor]:
        return (x.abs().mean(0),)

    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6,))
    rates = ttpfl.Rates.zeros(model, only="stats")
    assert rates.names == ("1.running_scale",)
    hidden = model[0](x).detach()
    h = hidden.abs().mean(0) - 1
    rates.values = torch.tensor([0.5], dtype=torch.float64)
    scale_now = (1 + 0.5 * h).requires_grad_()
    logits = model[2](hidden / (scale_now + 1e-3))
    torch.testing.assert_close(ttpfl.Personalizer(model, rates)(x), logits.detach())
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y), scale_now)
    moved = ttpfl.refine_rates(model, rates, [(x, y)], lr=1.0).values - 0.5
    torch.testing.assert_close(moved, -(h * gradient).sum(0, keepdim=True) / 2)
    rates.values[:] = 50.0  # far below zero, but for the clamp
    clamped = (1 + 50 * h).clamp(min=0)
    assert (clamped == 0).any()
    personal = ttpfl.Personalizer(model, rates)
    torch.testing.assert_close(personal(x), model[2](hidden / (clamped + 1e-3)).detach())


def test_proposition_3_2() -> None:
    """A shift of the first two moments in front of BatchNorm is undone by adapting its statistics."""
    model = nn.Sequential(nn.BatchNorm1d(4, eps=0.0), nn.Linear(4, 3)).double().eval()
    x = torch.randn(200, 4, dtype=torch.float64)
    model[0].running_mean.copy_(x.mean(0))
    model[0].running_var.copy_(x.var(0))
    shifted = x * torch.tensor([2.0, 0.5, 3.0, 1.5]) + torch.tensor([1.0, -4.0, 0.0, 7.0])
    rates = ttpfl.Rates.zeros(model, only="stats")
    rates.values += 1
    personal = ttpfl.Personalizer(model, rates)
    assert not torch.allclose(model(shifted), model(x), atol=0.1)
    torch.testing.assert_close(personal(shifted), model(x).detach(), rtol=1e-9, atol=1e-9)
