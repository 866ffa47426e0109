"""The label prior as a module: its direction, its slope, and what a personalizer remembers of it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ttpfl
from tests.helpers.networks import batches, make, some_rates
from tests.helpers.untouched import untouched
from ttpfl.core.label_prior import (
    ITERATIONS,
    LABEL_PRIOR,
    SMOOTHING,
    _source,
    predicted,
    prior_direction,
    soft_counts,
    weighted_prediction,
)
from ttpfl.core.learning import adapted_tally
from ttpfl.core.rates import Rates
from ttpfl.core.slopes import class_count, mean_slope, plain_prediction
from ttpfl.core.twin import Twin

UNIFORM = [10.0] * 4


def rates_of(name: str, prior_rate: float, others: float = 0.0, classes: int = 5) -> Rates:
    """Rates for a test network, with a label prior of 40 samples whose frequencies are not uniform."""
    model = make(name)
    source = 40 * torch.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    rates = Rates.zeros(model, prior=source.tolist())
    values = others * torch.ones_like(rates.values)
    values[-1] = prior_rate
    return rates.with_values(values)


def obvious_direction(frequencies: list[float], samples: float, assumed: list[float]) -> list[float]:
    """Pseudo-counts and the logarithm, one class after the other."""
    share = samples / (samples + sum(assumed))
    source = [count / sum(assumed) for count in assumed]
    mixed = [share * f + (1 - share) * s for f, s in zip(frequencies, source, strict=True)]
    return [math.log((p + SMOOTHING) / (s + SMOOTHING)) for p, s in zip(mixed, source, strict=True)]


def obvious_counts(rows: list[list[float]], assumed: list[float]) -> list[float]:
    """EM with plain loops: expected labels given frequencies, then frequencies given these labels."""
    source = [count / sum(assumed) for count in assumed]
    likely = [list(row) for row in rows]
    for _ in range(ITERATIONS):
        found = [
            sum(column) + before for column, before in zip(zip(*likely, strict=True), assumed, strict=True)
        ]
        total = sum(found)
        ratios = [(f / total + SMOOTHING) / (s + SMOOTHING) for f, s in zip(found, source, strict=True)]
        weighted = [[p * ratio for p, ratio in zip(row, ratios, strict=True)] for row in rows]
        likely = [[p / sum(row) for p in row] for row in weighted]
    return [sum(column) for column in zip(*likely, strict=True)]


@pytest.mark.parametrize("samples", [1, 5, 20, 1000])
def test_soft_counts_against_obvious_ones(samples: int) -> None:
    logits = 2 * torch.randn(samples, 4, generator=torch.Generator().manual_seed(samples))
    source = [8.0, 6.0, 4.0, 2.0]
    expected = obvious_counts(logits.double().softmax(1).tolist(), source)
    torch.testing.assert_close(soft_counts(logits, source).tolist(), expected, rtol=1e-5, atol=1e-6)


def test_soft_counts_find_the_frequencies_of_a_calibrated_model() -> None:
    """Two overlapping normal distributions, one of them nearly twice as frequent as in training."""
    random = torch.Generator().manual_seed(0)
    labels = torch.rand(20_000, generator=random) < 0.9
    x = torch.randn(20_000, generator=random) + labels.float()  # means 0 and 1
    logits = torch.stack([torch.zeros_like(x), x - 0.5], 1)  # calibrated for equal frequencies
    plain = float(logits.softmax(1)[:, 1].mean())
    found = float(soft_counts(logits, [1.0, 1.0])[1]) / 20_000
    assert plain < found < 0.9
    assert 0.9 - found < 0.7 * (0.9 - plain)  # two iterations close a third of the gap


def test_soft_counts_are_those_of_the_samples() -> None:
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    assert float(soft_counts(logits, [1.0, 2.0, 3.0]).sum()) == pytest.approx(7)
    unknown = soft_counts(logits, [0.0, 0.0, 0.0])
    torch.testing.assert_close(unknown, logits.double().softmax(1).sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 5, 20, 1000])
def test_the_direction_against_an_obvious_one(samples: int) -> None:
    frequencies, source = [0.7, 0.2, 0.1, 0.0], [8.0, 6.0, 4.0, 2.0]
    found = prior_direction(samples * torch.tensor(frequencies, dtype=torch.float64), source)
    expected = obvious_direction(frequencies, samples, source)
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=1e-5, atol=1e-6)


def test_more_samples_of_the_same_kind_move_further() -> None:
    kinds = torch.tensor([0.55, 0.15, 0.15, 0.15], dtype=torch.float64)
    norms = [float(prior_direction(n * kinds, UNIFORM).norm()) for n in (2, 10, 50, 1000)]
    assert norms == sorted(norms)
    assert norms[0] < 0.2 * norms[-1]


def test_the_direction_is_bounded_and_finite() -> None:
    bound = math.log(1 + 1 / SMOOTHING)
    for counts in ([1e9, 0.0, 0.0], [0.0, 0.0, 1e9], [0.0, 0.0, 0.0]):
        direction = prior_direction(torch.tensor(counts, dtype=torch.float64), [1.0, 0.0, 0.0])
        assert direction.isfinite().all()
        assert float(direction.abs().max()) <= bound + 1e-6


def test_an_unknown_source_moves_nothing() -> None:
    assert not prior_direction(torch.tensor([5.0, 0.0]).double(), [0.0, 0.0]).any()


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_predictions_are_those_of_the_model_plus_the_offset(mode: Any) -> None:
    """With a rate for the prior alone; online, the counts of all samples so far decide."""
    model, stream = make("mlp"), [x for x, _ in batches("mlp", 3)]
    rates = rates_of("mlp", prior_rate=1.5)
    personal = ttpfl.Personalizer(model, rates, mode)
    seen = torch.zeros(5, dtype=torch.float64)
    for x in stream:
        with torch.no_grad():
            logits = model.eval()(x)
        counts = torch.tensor(obvious_counts(logits.double().softmax(1).tolist(), list(rates.prior))).double()
        seen = seen + counts if mode == "online" else counts
        n = float(seen.sum())
        expected = torch.tensor(obvious_direction((seen / n).tolist(), n, list(rates.prior)))
        with untouched(model):
            adapted = personal(x)
        torch.testing.assert_close(adapted, logits + 1.5 * expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(personal.logit_offset, 1.5 * expected, rtol=1e-4, atol=1e-5)
        assert personal.health.last.change_norm == 0


def test_decay_forgets_old_samples() -> None:
    """Counts of the last n batches dominate: an old stream of another kind is forgotten."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(20 * torch.eye(2))
    rates = Rates.zeros(model, prior=[0.5, 0.5]).with_values(torch.tensor([0.0, 1.0]))
    one, other = torch.tensor([[1.0, 0.0]] * 10), torch.tensor([[0.0, 1.0]] * 10)
    offsets = []
    for decay in (None, 0.5):
        personal = ttpfl.Personalizer(model, rates, "online", decay=decay)
        for batch in [one] * 8 + [other] * 4:
            personal(batch)
        offsets.append(personal.logit_offset)
    assert offsets[0][0] > offsets[0][1]  # 80 against 40
    assert offsets[1][0] < offsets[1][1]


def test_frequencies_are_those_of_the_adapted_predictions() -> None:
    """The same personalizer without the prior gives the logits that the counts follow from."""
    model, stream = make("mlp"), [x for x, _ in batches("mlp", 3)]
    rates = rates_of("mlp", prior_rate=1.5, others=0.5)
    values = rates.values.clone()
    values[-1] = 0
    without = ttpfl.Personalizer(model, rates.with_values(values), "online")
    personal, seen = ttpfl.Personalizer(model, rates, "online"), torch.zeros(5, dtype=torch.float64)
    for x in stream:
        adapted = without(x)
        assert not torch.allclose(adapted, model.eval()(x), atol=1e-2)
        seen += torch.tensor(obvious_counts(adapted.double().softmax(1).tolist(), list(rates.prior))).double()
        n = float(seen.sum())
        expected = torch.tensor(obvious_direction((seen / n).tolist(), n, list(rates.prior)))
        torch.testing.assert_close(personal(x), adapted + 1.5 * expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_slope_against_differences_of_the_loss(name: str, mode: Any) -> None:
    """With all modules moving, and through the predictions that the prior follows from.

    Online, what earlier batches counted is given, so that only the slope in the prior's own rate is exact.
    """
    model, data = make(name).double(), [(x.double(), y) for x, y in batches(name, 3)]
    rates = rates_of(name, prior_rate=0.7, others=0.02)
    rates = rates.with_values(rates.values.double())
    twin = Twin(model, rates.modules)
    slope, *_ = mean_slope(twin, rates, data, mode)
    for index, step in ((-1, 1e-3), (0, 1e-6), (3, 1e-6))[: 1 if mode == "online" else None]:
        losses = []
        for sign in (1, -1):
            values = rates.values.clone()
            values[index] += sign * step
            losses.append(adapted_tally(twin, rates.with_values(values), data, mode).mean_loss)
        assert float(slope[index]) == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-3, abs=1e-7)


def test_the_slope_of_the_prior_in_closed_form() -> None:
    """<direction, mean of softmax - one-hot>, at rates of zero."""
    model, ((x, y),) = make("mlp").eval(), batches("mlp", 1)
    rates = rates_of("mlp", prior_rate=0.0)
    slope, *_ = mean_slope(Twin(model, rates.modules), rates, [(x, y)], "batch")
    with torch.no_grad():
        p = model(x).softmax(1)
    counts = torch.tensor(obvious_counts(p.double().tolist(), list(rates.prior))).double()
    direction = prior_direction(counts, rates.prior)
    assert float(slope[-1]) == pytest.approx(
        float(direction @ (p - F.one_hot(y, 5)).mean(0).double()), rel=1e-4
    )


def test_the_predictions_of_a_client() -> None:
    """Without adaptation, and after it but before the prior."""
    model, data = make("mlp").eval(), batches("mlp", 3)
    unknown = Rates.zeros(model, prior=[0.0] * 5)
    slope, sums, found = plain_prediction(Twin(model, unknown.modules), unknown, data)
    assert not slope.any()
    assert sums.samples == sum(len(y) for _, y in data)
    with torch.no_grad():
        expected = torch.cat([model(x).softmax(1) for x, _ in data])
    torch.testing.assert_close(found / found.sum(), expected.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, weighted_prediction(expected).float(), rtol=1e-4, atol=0)
    rates = rates_of("mlp", prior_rate=1.5, others=0.5)
    found = mean_slope(Twin(model, rates.modules), rates, data, "batch").prediction
    values = rates.values.clone()
    values[-1] = 0
    without = ttpfl.Personalizer(model, rates.with_values(values))
    expected = torch.cat([without(x).softmax(1) for x, _ in data])
    torch.testing.assert_close(found, weighted_prediction(expected).float(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_a_batch_that_overflows_does_not_count(mode: Any) -> None:
    """Its loss is very large, but the mean prediction is that of the others; online, of those before it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 5)).eval()
    data = [(torch.randn(8, 4) + 1, torch.randint(5, (8,))) for _ in range(3)]
    rates = Rates.zeros(model, prior=[2.0] * 5)
    rates = rates.with_values(torch.full_like(rates.values, 0.5))
    twin = Twin(model, rates.modules)
    huge = (torch.full((8, 4), 2e38), data[0][1])  # finite logits, but a mean that is not
    with torch.no_grad():
        model[1].weight.mul_(0.1)
        assert model(huge[0]).isfinite().all()
    found = mean_slope(twin, rates, [data[0], huge, *data[1:]], mode)
    expected = mean_slope(twin, rates, data if mode == "batch" else data[:1], mode)
    assert found.sums.mean_loss > 1000 * expected.sums.mean_loss
    torch.testing.assert_close(found.prediction, expected.prediction)
    assert found.slope.isfinite().all()
    nothing = mean_slope(twin, rates, [huge], mode)
    assert not nothing.prediction.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_prior_that_overflows_is_not_used(dtype: torch.dtype) -> None:
    model, ((x, _),) = make("mlp").eval().to(dtype), batches("mlp", 1)
    rates = rates_of("mlp", prior_rate=3.4e38 if dtype == torch.float32 else 3e5).with_prior([0.01] * 5)
    personal = ttpfl.Personalizer(model, rates, "online")
    with torch.no_grad():
        torch.testing.assert_close(personal(x.to(dtype)), model(x.to(dtype)))
    assert personal.fallbacks == 1
    assert personal.predict(x.to(dtype)).isfinite().all()


def test_a_state_with_negative_counts_is_refused() -> None:
    model, ((x, _),) = make("mlp"), batches("mlp", 1)
    personal = ttpfl.Personalizer(model, rates_of("mlp", prior_rate=1.5), "online")
    personal(x)
    state = personal.state_dict()
    state[f"counts.{LABEL_PRIOR}"][0] = -20
    with pytest.raises(ttpfl.RatesError, match="negative number, -20"):
        personal.load_state_dict(state)


def test_inference_mode_does_not_matter_to_later_passes() -> None:
    model, data = make("mlp"), batches("mlp", 1)
    rates = rates_of("mlp", prior_rate=1.5).with_prior([1.25, 2.5, 3.75, 5.0, 6.25])  # used by no other test
    personal = ttpfl.Personalizer(model, rates, "online")
    personal(data[0][0])
    _source.cache_clear()
    with torch.inference_mode():
        assert personal.logit_offset is not None
    assert mean_slope(Twin(model, rates.modules), rates, data, "batch").slope.isfinite().all()


def test_a_certain_prediction_is_worth_one_label() -> None:
    """Up to the bias of a variance."""
    labels = torch.randint(4, (500,), generator=torch.Generator().manual_seed(0))
    mean = weighted_prediction(F.one_hot(labels, 4).float())
    torch.testing.assert_close(mean, torch.bincount(labels).double() / 500, rtol=0.01, atol=0)


@pytest.mark.parametrize("rows", [[[0.5, 0.5]], [[0.5, 0.5]] * 3, [[1.0, 0.0]] * 3, [[1.0, 0.0]]])
def test_weighted_predictions_are_finite(rows: list[list[float]]) -> None:
    mean = weighted_prediction(torch.tensor(rows))
    assert mean.isfinite().all()
    torch.testing.assert_close(mean / mean.sum(), torch.tensor(rows[0]).double())


def test_rates_with_a_prior_go_through_a_file(tmp_path: Path) -> None:
    rates = rates_of("mlp", prior_rate=1.2, others=0.1)
    rates.save(tmp_path / "rates.safetensors")
    loaded = Rates.load(tmp_path / "rates.safetensors", model=make("mlp"))
    assert loaded.names[-1] == LABEL_PRIOR
    assert loaded.prior == rates.prior
    assert torch.equal(loaded.values, rates.values)
    assert LABEL_PRIOR in loaded.table()


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.5, 0.1, 0.1, 0.1, -2.0), (0.5, 0.5, 0.0, 0.0, math.nan)])
def test_an_impossible_prior_in_a_file_is_refused(prior: tuple[float, ...], tmp_path: Path) -> None:
    path = tmp_path / "rates.safetensors"
    rates_of("mlp", prior_rate=1.2).with_prior(prior).save(path)
    with pytest.raises(ttpfl.RatesFileError, match="label prior"):
        Rates.load(path)


def test_which_rates_there_are() -> None:
    model = make("mlp")
    prior = [0.2] * 5
    every = Rates.zeros(model, prior=prior)
    assert every.names == (*Rates.zeros(model).names, LABEL_PRIOR)
    assert Rates.zeros(model, only="prior", prior=prior).names == (LABEL_PRIOR,)
    for only in ("params", "stats"):
        alone = Rates.zeros(model, only=only, prior=prior)
        assert LABEL_PRIOR not in alone.names
        assert alone.prior == ()
    for granularity in ("layer", "block", "kind"):
        assert Rates.zeros(model, granularity, prior=prior).names[-1] == LABEL_PRIOR
    with pytest.raises(ttpfl.RatesError, match="pass prior="):
        Rates.zeros(model, only="prior")


def test_other_outputs_have_no_prior() -> None:
    x = torch.randn(6, 4)
    classes, single = nn.Linear(4, 3), nn.Linear(4, 1)
    assert class_count(Twin(classes, ()), (x, torch.randint(3, (6,)))) == 3
    assert class_count(Twin(classes, ()), (x, torch.rand(6, 3))) is None
    assert class_count(Twin(single, ()), (x, torch.randint(2, (6,)))) is None
    rates = Rates.zeros(single, prior=[0.5, 0.5]).with_values(torch.tensor([0.0, 0.0, 1.0]))
    with pytest.raises(ttpfl.BatchError, match="label prior of 2 classes"):
        ttpfl.Personalizer(single, rates, objective=lambda logits: logits.mean())(x)


def test_the_state_of_a_personalizer_has_the_counts() -> None:
    model, stream = make("mlp"), [x for x, _ in batches("mlp", 3)]
    rates = rates_of("mlp", prior_rate=1.5, others=0.05)
    first, second = (ttpfl.Personalizer(model, rates, "online") for _ in range(2))
    for x in stream[:2]:
        first(x)
    state = first.state_dict()
    assert float(state[f"counts.{LABEL_PRIOR}"].sum()) == pytest.approx(sum(map(len, stream[:2])))
    second.load_state_dict(state)
    assert torch.equal(first(stream[2]), second(stream[2]))


def test_the_adapted_model_has_the_prior() -> None:
    model, stream = make("mlp"), [x for x, _ in batches("mlp", 3)]
    personal = ttpfl.Personalizer(model, rates_of("mlp", prior_rate=1.5, others=0.05), "online")
    for x in stream:
        logits = personal(x)
    with untouched(model):
        torch.testing.assert_close(personal.adapted_model()(stream[-1]), logits)
    with pytest.raises(ttpfl.RatesError, match=r"use adapted_model\(\)"):
        personal.adapted_state_dict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    model, ((x, _),) = make("mlp"), batches("mlp", 1)
    rates = rates_of("mlp", prior_rate=1.5)
    expected = ttpfl.Personalizer(model, rates)(x)
    found = ttpfl.Personalizer(make("mlp").to(dtype), rates)(x.to(dtype))
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_rates_without_a_prior_are_as_before() -> None:
    model, ((x, _),) = make("mlp"), batches("mlp", 1)
    plain = some_rates(model)
    with_prior = Rates.zeros(model, prior=[0.2] * 5)
    values: Tensor = torch.cat([plain.values, torch.zeros(1)])
    one, other = (ttpfl.Personalizer(model, r) for r in (plain, with_prior.with_values(values)))
    assert torch.equal(one(x), other(x))
    assert one.logit_offset is None


def test_predictions_have_at_least_single_precision() -> None:
    assert predicted(torch.zeros(3, 4, dtype=torch.float16), 4).dtype == torch.float32
