"""The last layer: its gradient in closed form, how it is found, and what a personalizer does not compute."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ttpfl
from tests.helpers.networks import NETWORKS, batches, make
from tests.helpers.untouched import untouched
from ttpfl.core.direction import entropy, entropy_and_slope, probe
from ttpfl.core.inputs import Inputs
from ttpfl.core.last_layer import LastLayer, last_layer
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin, isolated

PRIOR = (0.1, 0.2, 0.3, 0.2, 0.2)
Read = Callable[[Any], Tensor]


class Scaled(nn.Module):
    """A network whose logits are not the output of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 7), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu()) / 2


class InPlace(Scaled):
    """The same, in place: the logits are the very tensor that the layer returned."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu()).div_(2)


class Tied(nn.Module):
    """The last layer uses the weights of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


class Twice(Scaled):
    """The last layer is called twice."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x).relu()
        return self.head(hidden + self.head(hidden).mean())


class Early(nn.Module):
    """The last layer is registered first, beside others that are not used, and the output is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.wrapped = nn.Linear(8, 5), nn.ModuleDict({"body": nn.Conv2d(3, 2, 3)})
        self.unused = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = self.wrapped["body"](x).relu()
        return {"maps": maps, "scores": self.out(F.adaptive_avg_pool2d(maps, 2).flatten(1))}


def by_autograd(twin: Twin, x: Tensor, objective: Callable[[Tensor], Tensor] = entropy) -> dict[str, Tensor]:
    """Negative gradients of everything that moves, by a backward pass through the whole network."""
    with isolated():
        logits = twin.fast(Inputs((x,), {}))
        tensors = {name: twin.parameters[name] for name, spec in twin.specs.items() if not spec.statistic}
        return dict(
            zip(tensors, torch.autograd.grad(-objective(logits), list(tensors.values())), strict=True)
        )


def moving(model: nn.Module, only: Any, scale: float = 0.1, prior: tuple[float, ...] = ()) -> Rates:
    rates = Rates.zeros(model, only=only, prior=prior)
    return rates.with_values(scale * torch.linspace(-1, 2, len(rates.values)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slope_of_the_entropy_against_autograd(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (4 * torch.randn(9, 5, dtype=dtype)).requires_grad_()
    (expected,) = torch.autograd.grad(entropy(logits), logits)
    found = entropy_and_slope(logits.detach())
    torch.testing.assert_close(found[0], entropy(logits.detach()))
    torch.testing.assert_close(found[1], expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("objective", [entropy, lambda logits: logits.float().square().mean()])
def test_the_direction_of_the_last_layer_against_autograd(
    dtype: torch.dtype, bias: bool, objective: Callable[[Tensor], Tensor]
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5, bias=bias)).to(dtype)
    twin, x = Twin(model, Rates.zeros(model, only="head").modules), torch.randn(9, 2, 3, dtype=dtype)
    with isolated():
        found = probe(twin, Inputs((x,), {}), objective)
    assert len(found.record.calls) == 1  # by the closed form
    expected = by_autograd(twin, x, objective)
    assert (
        found.direction.keys() == expected.keys() == {"3.weight", "3.bias"} - (set() if bias else {"3.bias"})
    )
    for name, gradient in expected.items():
        torch.testing.assert_close(found.direction[name].value, gradient)


@pytest.mark.parametrize("only", ["head", "forward"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_directions_without_a_backward_pass(name: str, only: Any) -> None:
    model = make(name)
    twin, (x, _) = Twin(model, Rates.zeros(model, only=only).modules), batches(name, 1)[0]
    with isolated():
        found = probe(twin, Inputs((x,), {}), entropy)
    assert not found.record.calls[0].features.requires_grad
    for tensor, gradient in by_autograd(twin, x).items():
        torch.testing.assert_close(found.direction[tensor].value, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("only", ["head", "forward", "prior"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_predictions_are_those_of_the_adapted_model(name: str, only: Any, mode: Any) -> None:
    """Bit for bit, also without a second pass."""
    model, stream = make(name), [x for x, _ in batches(name, 3)]
    personal = ttpfl.Personalizer(model, moving(model, only, prior=PRIOR), mode)
    with untouched(model), torch.no_grad():
        for x in stream:
            logits = personal(x)
            assert torch.equal(logits, personal.predict(x))
            assert torch.equal(logits, personal.adapted_model()(x))
            assert not torch.equal(logits, model(x))


def test_the_last_layer_of_a_pass() -> None:
    torch.manual_seed(0)
    images, rows = torch.randn(4, 3, 6, 6), torch.randn(4, 6)
    scores: Read = lambda output: output["scores"]  # noqa: E731
    early, mlp = Early(), make("mlp")
    found: list[tuple[nn.Module, Read]] = [
        (early, lambda output: scores(output)),
        (early, lambda output: scores(output).view(4, 5)),
        (early, lambda output: scores(output)[:, :4]),
        (early, lambda output: scores(output).double()),
    ]
    names = [last_layer(model, lambda: read(model(images))) for model, read in found]  # noqa: B023
    assert [last and last.name for last in names] == ["out", "out", None, None]
    for model, name in [(mlp, "4"), (nn.Sequential(mlp), "0.4"), (nn.Linear(6, 2), "")]:
        last = last_layer(model, lambda: model(rows))  # noqa: B023
        assert isinstance(last, LastLayer)
        assert last.name == name
    for model in (Scaled(), InPlace(), Tied()):
        assert last_layer(model, lambda: model(rows)) is None  # noqa: B023


@pytest.mark.parametrize("kind", [Scaled, InPlace, Twice])
@pytest.mark.parametrize("only", ["head", "forward"])
def test_a_layer_that_is_not_the_last_one_is_differentiated_as_usual(
    kind: type[nn.Module], only: Any
) -> None:
    """The rates name a layer, but the logits are something else: directions are still right."""
    torch.manual_seed(0)
    model, x = kind(), torch.randn(9, 6)
    twin = Twin(model, Rates.zeros(model, only=only).modules)
    with isolated():
        found = probe(twin, Inputs((x,), {}), entropy)
    assert twin.last_layer is None
    for name, gradient in by_autograd(twin, x).items():
        torch.testing.assert_close(found.direction[name].value, gradient)
    personal = ttpfl.Personalizer(model, moving(model, only), "online")
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(personal(x), personal.adapted_model()(x))


def test_shared_weights_are_differentiated_as_usual() -> None:
    model, x = Tied(), torch.randn(9, 6)
    names = ["last.bias", "first.weight"]
    for only in ("head", "forward"):
        with pytest.raises(ttpfl.RatesError, match=r"head='last' is not a linear layer with its own weights"):
            Rates.zeros(model, only=only, head="last")
    rates = Rates.zeros(model)
    values = torch.tensor([1.0 if name in names else 0.0 for name in rates.names])
    personal = ttpfl.Personalizer(model, rates.with_values(values))
    personal(x)
    expected = by_autograd(personal._twin, x)
    assert expected.keys() == set(names)
    changes = {name: personal.adapted_state_dict()[name] - model.state_dict()[name] for name in names}
    for name in names:
        torch.testing.assert_close(changes[name], expected[name], rtol=1e-4, atol=1e-6)


class Watched(nn.Module):
    """Counts forward passes, passes with a graph, and layers that a backward pass reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU()) for _ in range(3)
        )
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        COUNTS["passes"] = COUNTS.get("passes", 0) + 1
        for number, block in enumerate(self.blocks):
            x = block(x)
            if x.requires_grad:
                COUNTS["graphs"] = COUNTS.get("graphs", 0) + 1
                x.register_hook(lambda gradient, number=number: REACHED.add(number))
        logits: Tensor = self.head(x)
        return logits


COUNTS: dict[str, int] = {}
REACHED: set[int] = set()


@pytest.fixture
def watched() -> nn.Module:
    torch.manual_seed(0)
    COUNTS.clear()
    REACHED.clear()
    return Watched().eval()


def one_batch(model: nn.Module, rates: Rates, **options: Any) -> None:
    """Personalise a batch after the first one, which also probes the model."""
    personal = ttpfl.Personalizer(model, rates, "online", **options)
    personal(torch.randn(9, 6))
    COUNTS.clear()
    REACHED.clear()
    personal(torch.randn(9, 6))


@pytest.mark.parametrize(("only", "passes"), [("prior", 1), ("head", 1), ("stats", 2), ("forward", 2)])
@pytest.mark.parametrize("objective", [entropy, lambda logits: logits.square().mean()])
def test_passes_without_a_graph(watched: nn.Module, only: Any, passes: int, objective: Any) -> None:
    rates = moving(watched, only, prior=PRIOR)
    one_batch(watched, rates, objective=objective)
    assert {"passes": passes} == COUNTS


def test_all_rates_but_those_of_the_head_are_zero(watched: nn.Module) -> None:
    """What counts are the rates, not what they were learned for."""
    rates = Rates.zeros(watched, prior=PRIOR)
    values = [0.1 if name.startswith(("head", "label")) else 0.0 for name in rates.names]
    one_batch(watched, rates.with_values(torch.tensor(values)))
    assert COUNTS == {"passes": 1}


@pytest.mark.parametrize(("first", "reached"), [(0, {0, 1, 2}), (1, {1, 2}), (2, {2})])
def test_the_backward_pass_stops_at_the_first_block_that_moves(
    watched: nn.Module, first: int, reached: set[int]
) -> None:
    rates = Rates.zeros(watched)
    values = [0.1 if name == f"blocks.{first}.0.weight" else 0.0 for name in rates.names]
    one_batch(watched, rates.with_values(torch.tensor(values)))
    assert reached == REACHED
    assert {"passes": 2, "graphs": len(reached)} == COUNTS


def test_the_state_of_a_personalizer(tmp_path: Path) -> None:
    model, stream = make("mlp"), [x for x, _ in batches("mlp", 3)]
    rates = moving(model, "head", prior=PRIOR)
    personal, other = (ttpfl.Personalizer(model, rates, "online") for _ in range(2))
    for x in stream[:2]:
        personal(x)
    other.load_state_dict(personal.state_dict())
    assert torch.equal(other(stream[2]), personal(stream[2]))


def test_a_batch_that_overflows_changes_nothing() -> None:
    model, (x, _) = make("mlp"), batches("mlp", 1)[0]
    rates, steep = moving(model, "head", 1e38), lambda logits: 100 * logits.square().mean()
    personal = ttpfl.Personalizer(model, rates, "online", objective=steep)
    with torch.no_grad():
        torch.testing.assert_close(personal(x), model(x))
    assert personal.fallbacks == 1


def test_half_precision_and_casts() -> None:
    model, (x, _) = make("mlp"), batches("mlp", 1)[0]
    personal = ttpfl.Personalizer(model, moving(model, "head"))
    expected = personal(x)
    torch.testing.assert_close(personal.double()(x.double()), expected.double(), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        found = ttpfl.Personalizer(model, moving(model, "head"))(x)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


def test_an_objective_that_ignores_the_logits_moves_nothing() -> None:
    model, (x, _) = make("mlp"), batches("mlp", 1)[0]
    personal = ttpfl.Personalizer(model, moving(model, "head"), objective=lambda logits: torch.tensor(1.0))
    with torch.no_grad():
        assert torch.equal(personal(x), model(x))
    assert personal.health.last is not None
    assert personal.health.last.change_norm == 0
