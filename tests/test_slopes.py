"""A client's loss and its slope in every rate, compared with autograd through plain operations."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import ttpfl
from tests.helpers.networks import batches, make, some_rates
from tests.helpers.reference import Reference, State
from tests.helpers.untouched import untouched
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.learning import adapted_tally
from ttpfl.core.rates import Rates
from ttpfl.core.slopes import OVERFLOW, mean_slope
from ttpfl.core.twin import Twin

Batch = tuple[Tensor, Tensor]
RAGGED = (8, 8, 3)


def of_sizes(name: str, sizes: tuple[int, ...] = RAGGED) -> list[Batch]:
    return [batches(name, 1, size, seed)[0] for seed, size in enumerate(sizes)]


def slow_slope(model: nn.Module, rates: Rates, data: list[Batch], mode: str) -> tuple[Tensor, float]:
    """Slope and loss: every batch by itself, with a graph from the rates to the loss."""
    reference, values = Reference(model), rates.values.double().requires_grad_()
    rate_of = {name: values[i] for i, names in enumerate(rates.members.values()) for name in names}
    total, past = values.new_zeros(()), list[State]()
    for x, y in data:
        past = [*(past if mode == "online" else []), on_log_scale(reference, x, rates.variance)]
        state = {}
        for name, tensor in reference.start.items():
            change = rate_of[name] * torch.stack([h[name] for h in past]).mean(0)
            log = rates.variance == "log" and name.endswith("running_var")
            state[name] = (tensor + 1e-5) * change.exp() - 1e-5 if log else tensor + change
        logits = functional_call(reference.model, state, (x.double(),))
        total = total + F.cross_entropy(logits, y, reduction="sum")
    mean = total / sum(len(y) for _, y in data)
    return torch.autograd.grad(mean, values)[0], mean.item()


def on_log_scale(reference: Reference, x: Tensor, variance: str) -> State:
    """The reference's direction; of variances, logarithms if they move so."""
    h = reference.direction(x)
    for name, before in reference.start.items():
        if name.endswith("running_var") and variance == "log":
            h[name] = ((before + h[name] + 1e-5) / (before + 1e-5)).log()
    return h


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("variance", ["log", "linear"])
@pytest.mark.parametrize("name", ["mlp", "view", "cnn18"])
def test_the_mean_over_samples(name: str, variance: Any, mode: Any) -> None:
    """The last batch is smaller, so a mean over batches would differ."""
    model, data = make(name), of_sizes(name)
    rates = some_rates(model, scale=0.05, variance=variance)
    slope, sums, _ = mean_slope(Twin(model, rates.modules), rates, data, mode)
    expected, loss = slow_slope(model, rates, data, mode)
    assert slope.dtype == torch.float32
    torch.testing.assert_close(slope.double(), expected, rtol=2e-3, atol=2e-4 * float(expected.abs().max()))
    assert sums.samples == 19
    assert sums.mean_loss == pytest.approx(loss, rel=1e-4)
    assert slope.abs().max() > 1e-3


@pytest.mark.parametrize("granularity", ["layer", "block", "kind"])
def test_shared_rates(granularity: Any) -> None:
    """The slope of a shared rate is the sum over its modules; in float64, to many digits."""
    model = make("mlp").double()
    data = [(x.double(), y) for x, y in of_sizes("mlp")]
    rates = some_rates(model, scale=0.3, granularity=granularity, variance="log")
    rates.values = rates.values.double()
    slope, _, _ = mean_slope(Twin(model, rates.modules), rates, data, "online")
    torch.testing.assert_close(slope, slow_slope(model, rates, data, "online")[0], rtol=1e-9, atol=1e-9)


@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(2, 9), min_size=1, max_size=4))
def test_batches_count_by_their_samples(sizes: list[int]) -> None:
    model, data = make("mlp"), of_sizes("mlp", tuple(sizes))
    rates = some_rates(model, variance="log")
    twin = Twin(model, rates.modules)
    whole, sums, _ = mean_slope(twin, rates, data, "batch")
    parts = [mean_slope(twin, rates, [batch], "batch") for batch in data]
    slopes = torch.stack([slope.double() * len(y) for (slope, *_), (_, y) in zip(parts, data, strict=True)])
    torch.testing.assert_close(whole.double(), slopes.sum(0) / sum(sizes), rtol=1e-6, atol=1e-8)
    assert sums.loss == pytest.approx(sum(part.loss for _, part, _ in parts), rel=1e-12)
    assert sums.right == sum(part.right or 0 for _, part, _ in parts)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("scale", [0.0, 0.1])
@pytest.mark.parametrize("name", ["mlp", "cnn18", "groupnorm"])
def test_the_loss_is_that_of_an_evaluation(name: str, scale: float, mode: Any) -> None:
    """Also with rates of zero, where the evaluation does not adapt at all."""
    model, data = make(name), of_sizes(name)
    rates = some_rates(model, scale=scale, variance="log")
    twin = Twin(model, rates.modules)
    _, sums, _ = mean_slope(twin, rates, data, mode)
    expected = adapted_tally(twin, rates, data, mode)
    assert (sums.samples, sums.right) == (expected.samples, expected.right)
    assert sums.mean_loss == pytest.approx(expected.mean_loss, rel=1e-6)
    if not scale:
        with torch.no_grad():
            losses = [F.cross_entropy(model(x), y, reduction="sum").item() for x, y in data]
        assert sums.loss == pytest.approx(sum(losses), rel=1e-5)


@settings(max_examples=24, deadline=None)
@given(
    scale=st.sampled_from([10.0, 1e3, 1e6, 1e12, 1e30, 3e37]),
    variance=st.sampled_from(["log", "linear"]),
    mode=st.sampled_from(["batch", "online"]),
)
def test_never_nan(scale: float, variance: Any, mode: Any) -> None:
    model, data = make("mlp"), of_sizes("mlp")
    rates = some_rates(model, scale=scale, variance=variance)
    slope, sums, _ = mean_slope(Twin(model, rates.modules), rates, data, mode)
    assert slope.isfinite().all()
    assert math.isfinite(sums.mean_loss)
    assert sums.samples == 19


def test_overflow_counts_as_a_large_loss_without_a_slope() -> None:
    model, data = make("mlp"), of_sizes("mlp")
    rates = some_rates(model, scale=3e37)
    slope, sums, _ = mean_slope(Twin(model, rates.modules), rates, data, "batch")
    assert sums.mean_loss == OVERFLOW
    assert not slope.any()


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -float("inf")])
def test_only_the_batch_that_overflows_is_left_out_of_the_slope(bad: float) -> None:
    model, data = make("mlp"), of_sizes("mlp")
    rates = some_rates(model, variance="log")
    twin = Twin(model, rates.modules)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels) * (bad if len(labels) == 3 else 1)

    slope, sums, _ = mean_slope(twin, rates, data, "batch", loss=loss)
    expected, others, _ = mean_slope(twin, rates, data[:2], "batch")
    torch.testing.assert_close(slope, expected * 16 / 19)
    assert sums.loss > others.loss + 3 * OVERFLOW * (1 - 1e-6)


def test_overflow_counts_more_than_any_finite_loss() -> None:
    """Whatever the unit of the loss is, and with the slopes of the other batches."""
    model, data = make("mlp"), of_sizes("mlp")
    rates = some_rates(model, variance="log")
    twin = Twin(model, rates.modules)

    def large(logits: Tensor, labels: Tensor) -> Tensor:
        return 1e20 * F.cross_entropy(logits, labels)

    def overflows(logits: Tensor, labels: Tensor) -> Tensor:
        return large(logits, labels) * (math.inf if len(labels) == 3 else 1)

    (slope, finite, _), (other, infinite, _) = (
        mean_slope(twin, rates, data, "batch", loss=loss) for loss in (large, overflows)
    )
    assert infinite.mean_loss > 1000 * finite.mean_loss > 1e20
    assert slope.isfinite().all()
    assert slope.any()
    assert other.isfinite().all()
    assert other.any()


def test_the_cache_and_the_callers_mode_change_nothing() -> None:
    model, data = make("cnn18"), of_sizes("cnn18")
    rates = some_rates(model, variance="log")
    with untouched(model):
        twin, cache = Twin(model, rates.modules), DirectionCache(2**24)
        expected, sums, _ = mean_slope(twin, rates, data, "online")
        with torch.no_grad():
            for _ in range(2):
                slope, again, _ = mean_slope(twin, rates, iter(data), "online", cache)
                assert torch.equal(slope, expected)
                assert again == sums
        assert cache.hits == len(data)


def squares(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits[:, 0] - labels).square().mean()


def spread(logits: Tensor) -> Tensor:
    return logits.var(0).mean()


@pytest.mark.parametrize(("objective", "loss"), [(spread, None), (None, squares)])
def test_own_functions(objective: Callable[..., Tensor] | None, loss: Callable[..., Tensor] | None) -> None:
    """Along finite differences of the evaluation's loss, in float64."""
    model = make("mlp").double()
    data = [(x.double(), y) for x, y in of_sizes("mlp")]
    own = {"objective": objective, "loss": loss}
    options: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    rates = some_rates(model, variance="log")
    rates.values = rates.values.double()
    twin = Twin(model, rates.modules)
    slope, _, _ = mean_slope(twin, rates, data, "batch", **options)
    aside = 1e-6 * torch.randn(len(slope)).double()
    low, high = (
        adapted_tally(twin, rates.with_values(rates.values + sign * aside), data, "batch", **options)
        for sign in (-1, 1)
    )
    assert float(slope @ aside) == pytest.approx((high.mean_loss - low.mean_loss) / 2, rel=1e-5)


def test_no_batches_and_wrong_ones() -> None:
    model, data = make("mlp"), of_sizes("mlp")
    rates = some_rates(model)
    twin = Twin(model, rates.modules)
    slope, sums, _ = mean_slope(twin, rates, [], "batch")
    assert not slope.any()
    assert sums.samples == 0
    data[1][0][2] = float("nan")
    with pytest.raises(ttpfl.BatchError, match="NaN or Inf in sample 2") as raised:
        mean_slope(twin, rates, data, "batch")
    assert "in batch 1 of this client" in str(raised.value) + str(getattr(raised.value, "__notes__", ""))
    with pytest.raises(ttpfl.RatesError, match="mode must be"):
        mean_slope(twin, rates, data, "stream")  # type: ignore[arg-type]
