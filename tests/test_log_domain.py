"""Variances in the log domain: closed forms, derivatives, and a slow obvious implementation."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

import ttpfl
from tests.helpers.networks import batches, make, some_rates
from ttpfl.core.log_domain import log_ratio, moved_in_log_domain, slope_in_log_domain
from ttpfl.core.rates import Rates
from ttpfl.core.slopes import mean_slope
from ttpfl.core.twin import Twin

OLD_RATES = sorted((Path(__file__).parent / "old_version" / "0.1" / "rates").glob("*.safetensors"))
State = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]

variances = st.floats(0, 1e12)


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def moved(stored: Tensor, batch: Tensor, rate: float) -> Tensor:
    number = torch.tensor(rate, dtype=torch.promote_types(stored.dtype, torch.float32))
    return moved_in_log_domain(stored, log_ratio(batch, stored), number)


@settings(deadline=None)
@given(stored=variances, batch=variances)
def test_rate_zero_keeps_and_rate_one_replaces(stored: float, batch: float) -> None:
    v, b = doubles(stored), doubles(batch)
    torch.testing.assert_close(moved(v, b, 0.0), v, rtol=1e-15, atol=1e-20)
    torch.testing.assert_close(moved(v, b, 1.0), b, rtol=1e-13, atol=1e-19)
    v, b = v.float(), b.float()
    torch.testing.assert_close(moved(v, b, 0.0), v, rtol=3e-7, atol=1e-11)
    torch.testing.assert_close(moved(v, b, 1.0), b, rtol=2e-5, atol=1e-9)


@settings(deadline=None)
@given(stored=variances, batch=variances, rate=st.floats(-2, 3))
def test_closed_form(stored: float, batch: float, rate: float) -> None:
    ratio = (batch + 1e-5) / (stored + 1e-5)
    expected = max(0.0, (stored + 1e-5) * ratio**rate - 1e-5) if abs(rate * math.log(ratio)) < 60 else None
    if expected is not None:
        torch.testing.assert_close(
            moved(doubles(stored), doubles(batch), rate), doubles(expected), rtol=1e-11, atol=1e-17
        )


@settings(deadline=None)
@given(
    stored=st.lists(st.floats(0, 65504), min_size=3, max_size=3),
    batch=st.lists(st.floats(0, 1e30), min_size=3, max_size=3),
    rate=st.floats(-1e6, 1e6),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_finite_and_not_negative_for_any_rate(
    stored: list[float], batch: list[float], rate: float, dtype: torch.dtype
) -> None:
    before = torch.tensor(stored).to(dtype)
    after = moved(before, torch.tensor(batch).to(torch.promote_types(dtype, torch.float32)), rate)
    assert after.dtype == torch.promote_types(dtype, torch.float32)
    for result in (after, after.to(dtype)):
        assert result.isfinite().all()
        assert (result >= 0).all()


@pytest.mark.parametrize("rate", [-1e6, -1.0, 0.0, 0.3, 1.0, 7.0, 1e6])
def test_zero_and_constant_channels(rate: float) -> None:
    """A channel that is constant in both moves nowhere; one that became constant shrinks, and stops at 0."""
    zero, one = doubles(0.0), doubles(1.0)
    assert moved(zero, zero, rate).item() == 0
    assert moved(one, one, rate).item() == pytest.approx(1, rel=1e-14)
    shrunk = moved(one, zero, rate).item()
    if rate >= 1:
        assert shrunk == pytest.approx(0, abs=1e-19)
    elif rate > 0:
        assert 0 < shrunk < 1
    grown = moved(zero, one, rate).item()
    assert grown == 0 if rate <= 0 else grown > 0


@settings(max_examples=200, deadline=None)
@given(stored=st.floats(1e-6, 1e4), batch=st.floats(0, 1e4), rate=st.floats(-1.5, 2))
def test_slope_against_differences(stored: float, batch: float, rate: float) -> None:
    v, width = doubles(stored), 1e-5
    ratio = log_ratio(doubles(batch), v)
    low, middle, high = (
        moved_in_log_domain(v, ratio, doubles(rate + sign * width)) for sign in (-1.0, 0.0, 1.0)
    )
    slope = slope_in_log_domain(middle, ratio)
    if float(low.minimum(high)) > 0:
        torch.testing.assert_close(slope, (high - low) / (2 * width), rtol=1e-6, atol=1e-9)
    elif float(low.maximum(high)) == 0:
        assert slope.item() == 0


def slow_direction(model: nn.Module, x: Tensor, variance: str) -> State:
    """One pass; what the BatchNorm layers see is recorded by hooks."""
    model, seen = copy.deepcopy(model).eval().requires_grad_(), dict[str, Tensor]()

    def record(name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        return lambda layer, inputs, output: seen.update({name: inputs[0].detach()})

    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):
            layer.register_forward_hook(record(name))
    log_p = model(x).log_softmax(1)
    (log_p.exp() * log_p).sum(1).mean().backward()  # minus the entropy
    h = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, features in seen.items():
        rows = features.movedim(1, -1).flatten(0, -2)
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        before = {mean: model.get_buffer(mean), var: model.get_buffer(var)}
        h[mean] = rows.mean(0) - before[mean]
        if variance == "log":
            h[var] = ((rows.var(0) + 1e-5) / (before[var] + 1e-5)).log()
        else:
            h[var] = rows.var(0) - before[var]
    return {name: change for name, change in h.items() if change is not None}


def slow_logits(
    model: nn.Module, x: Tensor, h: Mapping[str, Tensor], rate_of: Mapping[str, float], variance: str
) -> Tensor:
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, change in h.items():
        if name.endswith("running_var") and variance == "log":
            state[name] = (state[name] + 1e-5) * (rate_of[name] * change).exp() - 1e-5
        else:
            state[name] = state[name] + rate_of[name] * change
        if name.endswith("running_var"):
            state[name] = state[name].clamp(min=0)
    logits: Tensor = functional_call(copy.deepcopy(model).eval(), state, (x,))
    return logits.detach()


def slow_predictions(
    model: nn.Module, rates: Rates, stream: Iterable[Tensor], mode: str, variance: str
) -> list[Tensor]:
    members = zip(rates.members.values(), rates.values.tolist(), strict=True)
    rate_of = {name: value for names, value in members for name in names}
    past: list[State] = []
    predictions = []
    for x in stream:
        past = [*(past if mode == "online" else []), slow_direction(model, x, variance)]
        h = {name: torch.stack([one[name] for one in past]).mean(0) for name in past[0]}
        predictions.append(slow_logits(model, x, h, rate_of, variance))
    return predictions


def in_double(name: str, sizes: Sequence[int] = (8, 8, 5)) -> tuple[nn.Module, list[Batch]]:
    data = [batches(name, 1, size, seed)[0] for seed, size in enumerate(sizes)]
    return make(name).double(), [(x.double(), y) for x, y in data]


@pytest.mark.parametrize("variance", ["log", "linear"])
@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", ["mlp", "view"])
def test_predictions_are_those_of_a_slow_implementation(name: str, mode: Any, variance: Any) -> None:
    model, data = in_double(name)
    rates = some_rates(model, scale=0.4, variance=variance)
    stream = [x for x, _ in data]
    personal = ttpfl.Personalizer(model, rates, mode)
    expected = slow_predictions(model, rates, stream, mode, variance)
    for x, logits in zip(stream, expected, strict=True):
        torch.testing.assert_close(personal(x), logits, rtol=1e-9, atol=1e-9)
        assert (logits - copy.deepcopy(model)(x)).abs().max() > 1e-3


def test_both_rules_agree_at_zero_and_one_only() -> None:
    model, ((x, _), *_) = in_double("mlp")
    for rate, same in ((0.0, True), (1.0, True), (0.5, False)):
        log, linear = (
            ttpfl.Personalizer(model, Rates.zeros(model, only="stats", variance=rule).with_values(values))(x)
            for rule in ("log", "linear")
            for values in [torch.full((2,), rate)]
        )
        assert torch.allclose(log, linear, rtol=1e-10) == same


def test_far_beyond_the_linear_range_predictions_are_finite() -> None:
    model, (x, *_) = make("mlp"), [x for x, _ in batches("mlp")]
    index = Rates.zeros(model).names.index("1.running_var")
    for rate in (-1e6, -30.0, 30.0, 1e6):
        rates = Rates.zeros(model, variance="log")
        rates.values[index] = rate
        personal = ttpfl.Personalizer(model, rates)
        assert personal(x).isfinite().all()
        assert personal.fallbacks == 0
        assert (personal.adapted_state_dict()["1.running_var"] >= 0).all()


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("granularity", ["tensor", "layer"])
@pytest.mark.parametrize("variance", ["log", "linear"])
def test_slope_of_a_network_against_differences(granularity: Any, mode: Any, variance: Any) -> None:
    """Of the loss that the slow implementation gives; batches of several sizes."""
    model, data = in_double("mlp")
    scale = 0.3 if variance == "log" else 0.1  # beyond, variances stop at zero
    rates = some_rates(model, scale=scale, granularity=granularity, variance=variance)
    rates.values = rates.values.double()

    def loss_at(values: Tensor) -> float:
        predictions = slow_predictions(model, rates.with_values(values), [x for x, _ in data], mode, variance)
        pairs = zip(predictions, data, strict=True)
        total = sum(F.cross_entropy(logits, y, reduction="sum").item() for logits, (_, y) in pairs)
        return total / sum(len(y) for _, y in data)

    slope, sums, _ = mean_slope(Twin(model, rates.modules), rates, data, mode)
    assert sums.mean_loss == pytest.approx(loss_at(rates.values), rel=1e-9)
    width = 1e-5
    for index in range(len(rates.values)):
        aside = torch.zeros_like(rates.values)
        aside[index] = width
        numeric = (loss_at(rates.values + aside) - loss_at(rates.values - aside)) / (2 * width)
        assert slope[index].item() == pytest.approx(numeric, rel=1e-5, abs=1e-8), rates.names[index]
    assert slope.abs().min() > 1e-7  # every rate matters, or nothing was compared


@pytest.mark.parametrize("variance", ["log", "linear"])
def test_rates_file(variance: Any, tmp_path: Path) -> None:
    model = make("mlp")
    rates = some_rates(model, variance=variance)
    rates.save(tmp_path / "rates.safetensors")
    loaded = Rates.load(tmp_path / "rates.safetensors", model)
    assert loaded.variance == rates.variance == variance
    assert loaded.modules == rates.modules
    assert torch.equal(loaded.values, rates.values)
    (x, _), *_ = batches("mlp")
    assert torch.equal(ttpfl.Personalizer(model, loaded)(x), ttpfl.Personalizer(model, rates)(x))


def test_linear_is_the_default() -> None:
    model = make("mlp")
    assert Rates.zeros(model).variance == "linear"
    with pytest.raises(ttpfl.RatesError, match="variance must be"):
        Rates.zeros(model, variance="square")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", OLD_RATES, ids=lambda path: path.stem)
def test_old_files_are_linear(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["ttpfl"])["version"] == 1
    rates = Rates.load(path)
    assert rates.variance == "linear"
    assert not any(spec.log_domain for spec in rates.modules)


def test_there_are_old_files() -> None:
    assert len(OLD_RATES) > 5


@pytest.mark.parametrize(("one", "other"), [("log", "linear"), ("linear", "log")])
def test_the_state_of_another_rule_is_refused(one: Any, other: Any) -> None:
    """The mean directions of variances mean something else."""
    model, stream = make("mlp"), [x for x, _ in batches("mlp")]
    first, second = (
        ttpfl.Personalizer(model, some_rates(model, variance=rule), "online") for rule in (one, other)
    )
    for x in stream:
        first(x)
    second(stream[0])
    before = second.predict(stream[0])
    with pytest.raises(
        ttpfl.RatesError, match=r"the state is for other rates: they move '1.running_var' in another domain"
    ):
        second.load_state_dict(first.state_dict())
    assert torch.equal(second.predict(stream[0]), before)
    again = ttpfl.Personalizer(model, some_rates(model, variance=one), "online")
    again.load_state_dict(first.state_dict())
    assert torch.equal(again.predict(stream[0]), first.predict(stream[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    """The same predictions as in single precision, up to rounding."""
    model, (x, *_) = make("mlp"), [x for x, _ in batches("mlp")]
    rates = some_rates(model, scale=0.3, variance="log")
    expected = ttpfl.Personalizer(model, rates)(x)
    found = ttpfl.Personalizer(copy.deepcopy(model).to(dtype), rates)(x.to(dtype))
    assert found.dtype == dtype
    limit = 1e-5 if dtype == torch.float64 else 0.05
    assert (found.float() - expected).abs().max() < limit * expected.abs().max()
