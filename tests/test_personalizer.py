"""A model that adapts itself, and everything that must not happen on the way."""

import copy
import io
import logging
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttpfl
from tests.helpers.networks import CLASSES, NETWORKS, batches, make, some_rates
from tests.helpers.untouched import untouched
from ttpfl.core.health import Health, HealthFigures

names = st.sampled_from(["mlp", "groupnorm", "cnn18", "view", "vit"])
modes = st.sampled_from(["batch", "online"])


def stream_of(name: str, count: int = 3, size: int = 8) -> list[Tensor]:
    return [x for x, _ in batches(name, count, size)]


def plain(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return copy.deepcopy(model).eval()(x)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_zero_rates_are_the_plain_model(name: str, mode: str) -> None:
    model, stream = make(name).train(), stream_of(name)
    with untouched(model):
        personal = ttpfl.Personalizer(model, ttpfl.Rates.zeros(model), mode)
        tiny = ttpfl.Rates.zeros(model)
        tiny.values += 1e-30
        nearly = ttpfl.Personalizer(model, tiny, mode)
        for x in stream:
            expected = plain(model, x)
            assert torch.equal(personal(x), expected)  # bit for bit
            assert (nearly(x) - expected).abs().max() <= 1e-6 * max(1, expected.abs().max())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_model_is_never_changed(name: str) -> None:
    model, stream, rates = make(name).train(), stream_of(name), some_rates(make(name))
    calls = []
    handle = next(iter(model.children())).register_forward_hook(lambda *_: calls.append(1))
    next(iter(model.parameters())).requires_grad_(False)
    with untouched(model):
        personal = ttpfl.Personalizer(model, rates, "online")
        for x in stream:
            personal(x)
        personal.predict(stream[0])
        personal.adapted_state_dict()
        bad = stream[0].clone()
        bad[3] = float("nan")
        for wrong in (bad, stream[0][:0], stream[0][:, :1], stream[0].to(torch.uint8)):
            with pytest.raises(ttpfl.BatchError):
                personal(wrong)
    handle.remove()


def test_random_numbers_of_the_model_do_not_leak() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(F.dropout(x, training=True))

    model = Noisy()
    rates, x = some_rates(model), torch.randn(5, 4)
    with untouched(model):
        ttpfl.Personalizer(model, rates)(x)
        ttpfl.refine_rates(model, rates, [(x, torch.zeros(5, dtype=torch.long))])


@settings(max_examples=20, deadline=None)
@given(name=names, size=st.integers(1, 9))
def test_online_after_one_batch_is_batch_mode(name: str, size: int) -> None:
    model, (x, *_) = make(name), stream_of(name, size=size)
    rates = some_rates(model)
    online, batch = ttpfl.Personalizer(model, rates, "online"), ttpfl.Personalizer(model, rates)
    assert torch.equal(online(x), batch(x))


@settings(max_examples=20, deadline=None)
@given(name=names, mode=modes, count=st.integers(1, 4))
def test_reset_is_exact(name: str, mode: str, count: int) -> None:
    model, stream = make(name), stream_of(name, 5)
    personal = ttpfl.Personalizer(model, some_rates(model), mode)
    first = [personal(x) for x in stream]
    personal.reset()
    assert personal.health.batches == 0
    again = ttpfl.Personalizer(model, some_rates(model), mode)
    assert torch.equal(personal.predict(stream[0]), again.predict(stream[0]))
    for x, expected in zip(stream[:count], first, strict=False):
        assert torch.equal(personal(x), expected)


def test_batch_mode_forgets_and_online_mode_remembers() -> None:
    model, (a, b, _) = make("cnn18"), stream_of("cnn18")
    rates = some_rates(model)
    batch, online = ttpfl.Personalizer(model, rates), ttpfl.Personalizer(model, rates, "online")
    batch(a), online(a)
    assert torch.equal(batch(b), ttpfl.Personalizer(model, rates)(b))
    assert not torch.equal(online(b), ttpfl.Personalizer(model, rates, "online")(b))


def test_a_snapshot_is_taken() -> None:
    model, (x, *_) = make("mlp"), stream_of("mlp")
    rates = some_rates(model)
    personal = ttpfl.Personalizer(model, rates)
    expected = personal(x)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.mul_(0)
    rates.values.zero_()
    assert torch.equal(personal(x), expected)


def test_decay_is_an_exponential_mean() -> None:
    model, stream = make("mlp").double(), [x.double() for x in stream_of("mlp", 6)]
    rates = some_rates(model)
    single = [ttpfl.Personalizer(model, rates) for _ in stream]
    for personal, x in zip(single, stream, strict=True):
        personal(x)
    mean: dict[str, Tensor] = {}
    decaying = ttpfl.Personalizer(model, rates, "online", decay=0.7)
    for k, (personal, x) in enumerate(zip(single, stream, strict=True), 1):
        h = {n: t for n, t in personal.state_dict().items() if n.startswith("mean.")}
        weight = max(1 / k, 0.3)
        mean = {n: h[n] if k == 1 else (1 - weight) * mean[n] + weight * h[n] for n in h}
        decaying(x)
        for name, tensor in decaying.state_dict().items():
            if name != "count":
                torch.testing.assert_close(tensor, mean[name])
    for wrong in (0.0, 1.0, -0.5):
        with pytest.raises(ttpfl.RatesError, match="decay="):
            ttpfl.Personalizer(model, rates, "online", decay=wrong)
    with pytest.raises(ttpfl.RatesError, match="takes mode='online'"):
        ttpfl.Personalizer(model, rates, decay=0.5)
    with pytest.raises(ttpfl.RatesError, match="mode must be 'batch' or 'online', got 'slow'"):
        ttpfl.Personalizer(model, rates, "slow")


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", ["cnn", "resnet", "vit", "mlp"])
def test_predict_and_export(name: str, mode: str) -> None:
    """predict() uses what was learned without learning, and the export is that same model."""
    model, stream = make(name), stream_of(name)
    personal = ttpfl.Personalizer(model, some_rates(model), mode)
    assert (personal.predict(stream[0]) - plain(model, stream[0])).abs().max() < 1e-5
    for x in stream:
        expected = personal(x)
    state = copy.deepcopy(personal.state_dict())
    assert torch.equal(personal.predict(stream[-1]), expected)
    personal.predict(stream[0])
    assert all(torch.equal(state[k], v) for k, v in personal.state_dict().items())
    assert personal.health.batches == len(stream)

    exported = personal.adapted_state_dict()
    assert exported.keys() == model.state_dict().keys()
    assert all(t.is_contiguous() and not t.requires_grad for t in exported.values())
    other = copy.deepcopy(model)
    other.load_state_dict(exported)
    torch.testing.assert_close(plain(other, stream[-1]), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(model, stream[-1]), expected, rtol=1e-4, atol=1e-4)


def test_state_goes_to_another_process() -> None:
    model, (a, b, c) = make("resnet"), stream_of("resnet")
    rates = some_rates(model)
    first, second = (ttpfl.Personalizer(model, rates, "online") for _ in range(2))
    first(a), first(b)
    state = first.state_dict()
    assert set(state) == {"count"} | {f"mean.{name}" for name in rates.names}
    assert int(state["count"]) == 2
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    torch.testing.assert_close(second(c), first(c), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("name", ["mlp", "cnn18", "resnet"])
def test_copies_adapt_as_the_original_does(name: str, copied: Callable[[Any], Any]) -> None:
    model, (a, b, c) = make(name), [x for x, _ in batches(name)]
    personal = ttpfl.Personalizer(model, some_rates(model, scale=0.5), "online")
    personal(a)
    other = copied(personal)
    for x in (b, c):
        assert torch.equal(other(x), personal(x))
    state = personal.adapted_state_dict()
    assert all(torch.equal(value, state[key]) for key, value in other.adapted_state_dict().items())
    kept = personal.predict(a)
    other.reset()
    other.double()
    other(a.double() if a.is_floating_point() else a)
    assert torch.equal(personal.predict(a), kept)


def test_state_that_does_not_fit_changes_nothing() -> None:
    model, (x, *_) = make("mlp"), stream_of("mlp")
    personal = ttpfl.Personalizer(model, some_rates(model), "online")
    personal(x)
    before = copy.deepcopy(personal.state_dict())
    for change, message in [
        ({"mean.0.weight": torch.zeros(2)}, r"'0.weight' has shape \(2,\)"),
        ({"mean.0.bias": torch.full((16,), float("nan"))}, "'0.bias'.*not finite"),
        ({"mean.other": torch.zeros(2)}, "'other' is in only one of them"),
        ({"count": torch.tensor(0)}, "not the state of a personalizer"),
    ]:
        with pytest.raises(ttpfl.RatesError, match=message):
            personal.load_state_dict(before | change)
        assert all(torch.equal(before[k], v) for k, v in personal.state_dict().items())
    with pytest.raises(ttpfl.RatesError, match="not the state of a personalizer"):
        personal.load_state_dict(model.state_dict())


def test_inside_no_grad_and_inference_mode() -> None:
    model, stream = make("cnn18"), stream_of("cnn18")
    rates = some_rates(model)
    expected = [ttpfl.Personalizer(model, rates)(x) for x in stream]
    labels = torch.randint(CLASSES, (8,))
    learned = ttpfl.refine_rates(model, rates, [(x, labels) for x in stream])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            inside = ttpfl.Personalizer(model, rates)
            data = [x.clone() for x in stream]  # inference tensors, in inference mode
            answers = [inside(x) for x in data]
            again = ttpfl.refine_rates(model, rates, [(x, labels.clone()) for x in data])
            inside.predict(data[0])
            exported = inside.adapted_state_dict()
        assert all(torch.equal(a, b) for a, b in zip(answers, expected, strict=True))
        assert torch.equal(again.values, learned.values)
        assert not any(t.is_inference() or t.requires_grad for t in (*answers, *exported.values()))
    with torch.inference_mode():
        born_there = copy.deepcopy(model)
        personal = ttpfl.Personalizer(born_there, rates)
    assert torch.equal(personal(stream[0]), expected[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["cnn18", "mlp", "vit"])
def test_other_precisions(name: str, dtype: torch.dtype) -> None:
    model, stream = make(name), stream_of(name)
    rates = some_rates(model)
    reference = ttpfl.Personalizer(model, rates, "online")
    cast = copy.deepcopy(model).to(dtype)
    personal = ttpfl.Personalizer(cast, rates, "online")
    tolerance = {torch.float16: 0.03, torch.bfloat16: 0.2, torch.float64: 1e-4}[dtype]
    for x in stream:
        expected, logits = reference(x), personal(x.to(dtype))
        assert logits.dtype == dtype
        assert (logits.float() - expected).abs().max() < tolerance * expected.abs().max()
    means = [t for k, t in personal.state_dict().items() if k != "count"]
    assert {t.dtype for t in means} == {torch.promote_types(dtype, torch.float32)}
    assert {t.dtype for k, t in personal.adapted_state_dict().items() if "tracked" not in k} == {dtype}
    assert torch.equal(
        ttpfl.Personalizer(cast, ttpfl.Rates.zeros(cast))(x.to(dtype)), plain(cast, x.to(dtype))
    )
    assert personal.fallbacks == 0


def test_memory_formats() -> None:
    model, (x, *_) = make("cnn"), stream_of("cnn")
    rates = some_rates(model)
    expected = ttpfl.Personalizer(model, rates)(x)
    last = x.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ttpfl.Personalizer(model, rates)(last), expected)
    in_last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    torch.testing.assert_close(ttpfl.Personalizer(in_last, rates)(last), expected, rtol=1e-4, atol=1e-4)
    zero = ttpfl.Personalizer(in_last, ttpfl.Rates.zeros(in_last))
    assert torch.equal(zero(last), plain(in_last, last))


def test_follows_to() -> None:
    model, (a, b, _) = make("mlp"), stream_of("mlp")
    rates = some_rates(model)
    personal = ttpfl.Personalizer(model, rates, "online")
    personal(a)
    moved = copy.deepcopy(personal).to(torch.float64)
    torch.testing.assert_close(moved(b.double()).float(), personal(b), rtol=1e-4, atol=1e-4)
    assert {t.dtype for k, t in moved.state_dict().items() if k != "count"} == {torch.float64}
    nested = nn.Sequential(copy.deepcopy(personal)).to(torch.bfloat16)
    assert nested(b.bfloat16()).dtype == torch.bfloat16
    assert {t.dtype for k, t in nested.state_dict().items() if "count" not in k} == {torch.float32}
    if torch.cuda.is_available():
        personal.reset()
        elsewhere = ttpfl.Personalizer(model, rates, "online").to("cuda")
        torch.testing.assert_close(elsewhere(a.cuda()).cpu(), personal(a), rtol=1e-3, atol=1e-3)


def test_two_personalizers_in_two_threads() -> None:
    model, stream = make("cnn18"), stream_of("cnn18", 6)
    rates = some_rates(model)
    alone = ttpfl.Personalizer(model, rates, "online")
    expected = [alone(x) for x in stream]
    answers: dict[int, list[Tensor]] = {}

    def serve(number: int) -> None:
        personal = ttpfl.Personalizer(model, rates, "online")
        answers[number] = [personal(x) for x in stream]

    with untouched(model):
        threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 4
    for got in answers.values():
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_bad_batches_leave_the_state_as_it_was() -> None:
    model, (a, b, c) = make("cnn18"), stream_of("cnn18")
    rates = some_rates(model)
    personal, undisturbed = (ttpfl.Personalizer(model, rates, "online") for _ in range(2))
    for p in (personal, undisturbed):
        p(a)
    state = copy.deepcopy(personal.state_dict())
    bad = b.clone()
    bad[5, 0, 2, 2] = float("inf")
    for wrong, message in [
        (bad, "input has NaN or Inf in sample 5"),
        (b[:0], "the batch is empty"),
        (b[:, :1], r"cannot process this batch \(input: torch.float32 \(8, 1, 18, 18\)\)"),
        (b.double(), r"cannot process this batch \(input: torch.float64"),
        ((b > 0), "cannot process this batch"),
        ("text", "has no tensor"),
    ]:
        with pytest.raises(ttpfl.BatchError, match=message):
            personal(wrong)
        assert all(torch.equal(state[k], v) for k, v in personal.state_dict().items())
    assert personal.health.batches == 1
    assert torch.equal(personal(c), undisturbed(c))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("mode", ["batch", "online"])
def test_small_and_constant_batches_are_fine(name: str, mode: str) -> None:
    model, (x, *_) = make(name), stream_of(name)
    rates = some_rates(model)
    rates.values = rates.values.abs() + 0.5
    personal = ttpfl.Personalizer(model, rates, mode)
    for batch in (x[:1], torch.zeros_like(x), torch.ones_like(x) * 1e3, x, x[:1]):
        assert torch.isfinite(personal(batch)).all()
        assert torch.isfinite(personal.predict(batch)).all()
    assert personal.fallbacks == 0
    refined = ttpfl.refine_rates(model, some_rates(model), [(x[:1], torch.zeros(1, dtype=torch.long))])
    assert torch.isfinite(refined.values).all()


def test_falls_back_to_the_plain_model(caplog: pytest.LogCaptureFixture) -> None:
    model, (a, b, c) = make("mlp"), stream_of("mlp")
    rates = some_rates(model)
    rates.values[:] = 1e38
    personal = ttpfl.Personalizer(model, rates)
    with caplog.at_level(logging.WARNING, "ttpfl"):
        for number, x in enumerate((a, b, c), 1):
            torch.testing.assert_close(personal(x), plain(model, x))
            torch.testing.assert_close(personal.predict(x), plain(model, x))
            assert personal.fallbacks == personal.health.fallbacks == number
    assert len(caplog.records) == 1
    assert "predicting with the plain model" in caplog.text


def test_a_direction_that_is_not_finite_is_not_learned() -> None:
    model, (a, b, c) = make("mlp"), stream_of("mlp")
    spoilt = False

    def objective(logits: Tensor) -> Tensor:
        value = logits.softmax(1).square().sum()
        return value * float("inf") if spoilt else value

    personal, undisturbed = (
        ttpfl.Personalizer(model, some_rates(model), "online", objective=objective) for _ in range(2)
    )
    personal(a), undisturbed(a)
    spoilt = True
    torch.testing.assert_close(personal(b), plain(model, b))
    assert personal.fallbacks == 1
    spoilt = False
    assert torch.equal(personal(c), undisturbed(c))


def test_a_broken_model_is_said() -> None:
    model = make("mlp")
    with torch.no_grad():
        model[0].bias.fill_(float("nan"))
    with pytest.raises(ttpfl.BatchError, match="the model returns logits that are not finite"):
        ttpfl.Personalizer(model, some_rates(model))(stream_of("mlp")[0])


def test_health() -> None:
    model, stream = make("mlp"), stream_of("mlp", 15)
    rates = some_rates(model, scale=2.0)
    personal = ttpfl.Personalizer(model, rates, "online")
    assert personal.health.last is None
    history = []
    for x in stream:
        logits = personal(x)
        last = personal.health.last
        history.append(last.entropy_before)
        before, after = plain(model, x), logits

        def entropy(logits: Tensor) -> float:
            return torch.distributions.Categorical(logits=logits).entropy().mean().item()

        assert last.entropy_before == pytest.approx(entropy(before), rel=1e-4, abs=1e-6)
        assert last.entropy_after == pytest.approx(entropy(after), rel=1e-4, abs=1e-6)
        assert last.changed_share == pytest.approx(
            (before.argmax(1) != after.argmax(1)).float().mean().item()
        )
        exported = personal.adapted_state_dict()
        change = sum((exported[n] - model.state_dict()[n]).square().sum() for n in rates.names) ** 0.5
        assert last.change_norm == pytest.approx(change.item(), rel=1e-3)
    assert personal.health.batches == 15
    smoothed = history[0]
    for k, value in enumerate(history[1:], 2):
        smoothed += max(1 / k, 0.1) * (value - smoothed)
    assert personal.health.smoothed.entropy_before == pytest.approx(smoothed)
    still = ttpfl.Personalizer(model, ttpfl.Rates.zeros(model))
    still(stream[0])
    assert still.health.last.change_norm == still.health.last.changed_share == 0
    assert still.health.last.entropy_after == still.health.last.entropy_before


def test_figures_that_overflowed_do_not_spoil_the_average() -> None:
    """Neither the first nor a later one."""
    health = Health().after(HealthFigures(math.inf, math.nan, math.inf, 0.5))
    for _ in range(2):
        health = health.after(HealthFigures(1.0, 0.5, 2.0, 0.5))
    assert health.smoothed == HealthFigures(1.0, 0.5, 2.0, 0.5)
    assert health.after(HealthFigures(math.inf, 0.5, 2.0, 0.5)).smoothed == health.smoothed


def test_images_of_changing_size() -> None:
    """Other maps have other live taps; the running mean must hold for all of them."""
    model = make("resnet").double()
    rates = some_rates(model)
    torch.manual_seed(2)
    stream = [torch.randn(4, 3, s, s, dtype=torch.float64) for s in (32, 64, 32, 48)]
    online = ttpfl.Personalizer(model, rates, "online")
    mean: dict[str, Tensor] = {}
    for k, x in enumerate(stream, 1):
        alone = ttpfl.Personalizer(model, rates)
        alone(x)
        h = {n: t for n, t in alone.state_dict().items() if n != "count"}
        mean = {n: h[n] if k == 1 else mean[n] + (h[n] - mean[n]) / k for n in h}
        logits = online(x)
        exported = copy.deepcopy(model)
        state = model.state_dict()
        for rate, name in zip(rates.values, rates.names, strict=True):
            state[name] = state[name] + rate * mean[f"mean.{name}"]
        exported.load_state_dict(state)
        torch.testing.assert_close(logits, plain(exported, x), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            online.predict(stream[0]), plain(exported, stream[0]), rtol=1e-6, atol=1e-6
        )


class TiedUse(nn.Module):
    """One kernel used by two convolutions on maps of different size, and outside of any."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 3, 3) * 0.3)
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.weight, stride=2, padding=1).relu()  # 2x2 -> 1x1
        x = F.conv2d(x, self.weight, padding=1) + self.conv(x) + self.weight.mean()
        return self.head((x + self.conv(x) * self.conv.weight.sum()).flatten(1))


def test_kernels_used_in_several_ways() -> None:
    model = TiedUse().double()
    x = torch.randn(6, 3, 2, 2, dtype=torch.float64)
    rates = some_rates(model)
    personal = ttpfl.Personalizer(model, rates)
    logits = personal(x)
    entropy = torch.distributions.Categorical(logits=model(x)).entropy().mean()
    gradients = torch.autograd.grad(entropy, list(model.parameters()))
    adapted = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, gradient, rate in zip(adapted.parameters(), gradients, rates.values, strict=True):
            parameter -= rate * gradient
    torch.testing.assert_close(logits, plain(adapted, x))


def test_shared_parameters_move_together() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    model[2].weight = model[0].weight
    x = torch.randn(6, 4, dtype=torch.float64)
    rates = some_rates(model, scale=0.5)
    personal = ttpfl.Personalizer(model, rates)
    logits = personal(x)
    exported = personal.adapted_state_dict()
    assert torch.equal(exported["0.weight"], exported["2.weight"])
    other = copy.deepcopy(model)
    other.load_state_dict(exported)
    torch.testing.assert_close(logits, plain(other, x))
    entropy = torch.distributions.Categorical(logits=model(x)).entropy().mean()
    (gradient,) = torch.autograd.grad(entropy, model[0].weight)
    torch.testing.assert_close(exported["0.weight"], model[0].weight.detach() - rates.values[0] * gradient)


def test_recurrent_and_embedding_networks() -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8, sparse=True)
            self.lstm = nn.LSTM(8, 8, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.lstm(self.embedding(tokens))[0][:, -1])

    model = Text()
    tokens = torch.randint(20, (6, 5))
    personal = ttpfl.Personalizer(model, some_rates(model, scale=3.0))
    logits = personal(tokens)
    other = copy.deepcopy(model)
    other.load_state_dict(personal.adapted_state_dict())
    torch.testing.assert_close(logits, plain(other, tokens))
    assert not torch.allclose(logits, plain(model, tokens))
    with pytest.raises(ttpfl.BatchError, match=r"cannot process this batch.*index out of range"):
        personal(tokens + 20)


def test_weight_normalised_networks() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3, padding=1)), nn.Flatten(), nn.Linear(4, 3)
    ).double()
    x = torch.randn(5, 3, 1, 1, dtype=torch.float64)
    personal = ttpfl.Personalizer(model, some_rates(model))
    logits = personal(x)
    other = copy.deepcopy(model)
    other.load_state_dict(personal.adapted_state_dict())
    torch.testing.assert_close(logits, plain(other, x))


def test_a_model_that_cannot_be_copied_is_said() -> None:
    model = nn.Linear(3, 2)
    model.cache = model(torch.randn(1, 3))  # a computed tensor
    with pytest.raises(ttpfl.ModelError, match="cannot be copied"):
        ttpfl.Personalizer(model, some_rates(nn.Linear(3, 2)))
