"""Models that do more than compute, and what must not come of it."""

import copy
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import ttpfl
from tests.helpers.networks import batches, make, some_rates
from tests.helpers.untouched import untouched
from ttpfl.core import rates_file


class InPlace(nn.Module):
    """Works on its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x -= 1.0
        return self.linear(x.mul_(2))


def test_inputs_are_not_overwritten() -> None:
    model, x, y = InPlace(), torch.randn(6, 4), torch.randint(3, (6,))
    kept = x.clone()
    expected = model(x.clone()).detach()
    tiny = ttpfl.Rates.zeros(model)
    tiny.values += 1e-30
    assert torch.equal(ttpfl.Personalizer(model, ttpfl.Rates.zeros(model))(x), expected)
    assert torch.equal(ttpfl.Personalizer(model, tiny, "online")(x), expected)
    cached = ttpfl.DirectionCache(10**6)
    once = ttpfl.learn_rates(model, [(x, y)], optimizer="sgd", rounds=3, cache=cached)
    again = ttpfl.learn_rates(model, [(x, y)], optimizer="sgd", rounds=3, cache=ttpfl.DirectionCache(0))
    assert torch.equal(once.values, again.values)
    assert torch.equal(x, kept)


def test_parameters_written_in_the_forward_pass_stay() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 3))
    tokens, y = torch.randint(10, (6, 3)), torch.randint(3, (6,))
    with untouched(model):
        ttpfl.refine_rates(model, some_rates(model), [(tokens, y)])
        ttpfl.Personalizer(model, some_rates(model))(tokens)


class Counting(nn.Module):
    """Writes a buffer in every pass, and computes with it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out = self.linear(x + self.calls + self.last)
        self.last = x.mean(0)
        return out


def test_buffers_written_in_the_forward_pass_stay() -> None:
    model, x, y = Counting(), torch.randn(6, 4), torch.randint(3, (6,))
    expected = copy.deepcopy(model)(x).detach()
    with untouched(model):
        plain = ttpfl.Personalizer(model, ttpfl.Rates.zeros(model))
        assert torch.equal(plain(x), expected)
        assert torch.equal(plain(x), expected)
        personal = ttpfl.Personalizer(model, some_rates(model))
        assert torch.equal(personal(x), personal(x))
        cache = ttpfl.DirectionCache(10**6)
        one = ttpfl.refine_rates(model, some_rates(model), [(x, y)] * 3, cache=cache)
        other = ttpfl.refine_rates(model, some_rates(model), [(x, y)] * 3)
    assert torch.equal(one.values, other.values)


class CountsLate(nn.Module):
    """Looks at strides, which a first try in another layout does not survive, then writes and draws."""

    def __init__(self, strides: bool) -> None:
        super().__init__()
        self.strides = strides
        self.linear = nn.Linear(16, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.strides:
            x.stride()
        out = self.linear(x.flatten(1) + self.seen)
        self.seen += 1
        return out + torch.rand(3)


@pytest.mark.parametrize("strides", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_pass_that_failed_does_not_tell_what_a_model_does(strides: bool, scale: float) -> None:
    model, x = CountsLate(strides), torch.randn(6, 1, 4, 4)
    rates = some_rates(model, scale=scale)
    expected = ttpfl.Personalizer(model, rates)
    torch.manual_seed(1)
    answer = expected(x)
    torch.manual_seed(1)
    personal = ttpfl.Personalizer(model, rates)
    with pytest.raises(ttpfl.BatchError):
        personal(x[:, :, :3])
    for _ in range(3):  # nothing is counted, and the caller's random numbers are where they were
        assert torch.equal(personal(x), answer)
    if not scale:
        assert torch.equal(answer, copy.deepcopy(model)(x).detach())


class CountingNorm(nn.Module):
    """Writes a buffer in every pass, and has statistics that move."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.counting = nn.BatchNorm1d(4), Counting()

    def forward(self, x: Tensor) -> Tensor:
        return self.counting(self.norm(x))


def test_buffers_stay_when_the_first_pass_is_a_moved_one() -> None:
    model, rates = CountingNorm(), some_rates(CountingNorm())
    stream = [(torch.randn(6, 4) + 2, torch.randint(3, (6,))) for _ in range(3)]
    cache = ttpfl.DirectionCache(10**6)
    ttpfl.refine_rates(model, rates, stream[:1], cache=cache)
    cached = ttpfl.refine_rates(model, rates, stream, cache=cache)  # has a direction before any pass
    assert cache.hits == 1
    assert torch.equal(cached.values, ttpfl.refine_rates(model, rates, stream).values)


def test_random_numbers_of_other_threads_are_not_rewound() -> None:
    model, (x, *_) = make("mlp"), [x for x, _ in batches("mlp")]
    personal = ttpfl.Personalizer(model, some_rates(model))
    plain = ttpfl.Personalizer(model, ttpfl.Rates.zeros(model))
    personal(x), plain(x)
    drawn: list[float] = []
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            drawn.append(torch.rand(1, dtype=torch.float64).item())

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(50):
        personal(x), plain(x)
    stop.set()
    thread.join()
    assert len(set(drawn)) == len(drawn) > 100


class SharedGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.a + self.b)


class OverlappingGradient(SharedGradient):
    """The gradient of `a` is a part of that of `b`, and does not begin where that does."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, torch.cat([torch.zeros(1, 4), self.a]) + self.b)


class ExpandedGradient(SharedGradient):
    """The gradient of `b` is one number, seen everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.a) * self.b.sum()


@pytest.mark.parametrize("kind", [SharedGradient, OverlappingGradient, ExpandedGradient])
def test_parameters_whose_gradients_share_memory(kind: type[SharedGradient]) -> None:
    model = kind()
    stream = torch.randn(4, 6, 4)
    online = ttpfl.Personalizer(model, some_rates(model), "online")
    means = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for k, x in enumerate(stream, 1):
        online(x)
        entropy = torch.distributions.Categorical(logits=model(x)).entropy().mean()
        for mean, gradient in zip(
            means.values(), torch.autograd.grad(entropy, list(model.parameters())), strict=True
        ):
            mean.data += (-gradient - mean) / k
    for name, mean in means.items():
        torch.testing.assert_close(online.state_dict()[f"mean.{name}"], mean)


class Heads(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, heads, batch_first=True)
        self.head = nn.Linear(4, 3)
        self.temperature = 1.0

    def forward(self, x: Tensor, mask: object = None) -> Tensor:
        x = self.attention(x, x, x)[0].mean(1)
        return self.head(x if mask is None else x * torch.as_tensor(mask).mean()) / self.temperature


def test_cache_knows_what_shapes_the_computation() -> None:
    model, other = Heads(1), Heads(4)
    other.load_state_dict(model.state_dict())
    hot = copy.deepcopy(model)
    hot.temperature = 3.0
    x, y = torch.randn(6, 2, 4), torch.randint(3, (6,))
    cache = ttpfl.DirectionCache(10**7)
    masks = [np.ones(2000), np.linspace(0, 1, 2000)]
    cases = [(m, (x, y)) for m in (model, other, hot)]
    cases += [(model, ((x, mask), y)) for mask in masks]
    for net, batch in cases:
        rates = some_rates(net)
        expected = ttpfl.refine_rates(net, rates, [batch]).values
        for _ in range(2):
            assert torch.equal(ttpfl.refine_rates(net, rates, [batch], cache=cache).values, expected)
    for readout in (lambda out: out * 2, lambda out: out + torch.arange(3)):
        expected = ttpfl.refine_rates(model, rates, [(x, y)], logits=readout).values
        got = ttpfl.refine_rates(model, rates, [(x, y)], logits=readout, cache=cache).values
        assert torch.equal(got, expected)
    for only in ("params", None):
        start = some_rates(make("mlp"), only=only)
        data = batches("mlp")
        expected = ttpfl.refine_rates(make("mlp"), start, data).values
        assert torch.equal(ttpfl.refine_rates(make("mlp"), start, data, cache=cache).values, expected)
    with torch.autocast("cpu", torch.bfloat16):
        expected = ttpfl.refine_rates(model, some_rates(model), [(x, y)]).values
        got = ttpfl.refine_rates(model, some_rates(model), [(x, y)], cache=cache).values
    assert torch.equal(got, expected)


class StrideReader(nn.Module):
    """Looks at the memory layout of its input, and calls one BatchNorm twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(3 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        x = torch.as_strided(x, (len(x), 3, 4, 4), (48, 16, 4, 1))
        return self.head(self.norm(x).flatten(1))


def test_models_that_depend_on_the_layout() -> None:
    model = StrideReader().double().eval()
    model.norm.running_mean += 0.3
    x = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    first, second = x, model.norm(x).detach()
    personal = ttpfl.Personalizer(model, some_rates(model))
    for _ in range(2):
        personal(x)
        mean = (first.mean((0, 2, 3)) + second.mean((0, 2, 3))) / 2 - model.norm.running_mean
        torch.testing.assert_close(personal.state_dict()["mean.norm.running_mean"], mean)
    entropy = torch.distributions.Categorical(logits=model(x)).entropy().mean()
    (gradient,) = torch.autograd.grad(entropy, model.head.weight)
    torch.testing.assert_close(personal.state_dict()["mean.head.weight"], -gradient)
    assert not any(layer._forward_pre_hooks for layer in personal._twin.model.modules())


class SmallMaps(nn.Module):
    """Depends on the layout of its input, and of what a convolution on small maps gives."""

    def __init__(self, flat: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.flat = flat
        self.conv, self.head = nn.Conv2d(3, 5, 3, padding=1), nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        assert x.stride() == (12, 4, 2, 1)
        return self.head(self.flat(self.conv(x)))


@pytest.mark.parametrize(
    "flat", [lambda x: x.view(len(x), -1), lambda x: torch.as_strided(x, (len(x), 20), (20, 1))]
)
def test_small_maps_lie_in_memory_as_the_plain_models_do(flat: Callable[[Tensor], Tensor]) -> None:
    model, x = SmallMaps(flat).double().eval(), torch.randn(6, 3, 2, 2, dtype=torch.float64)
    personal = ttpfl.Personalizer(model, some_rates(model))
    personal(x)
    entropy = torch.distributions.Categorical(logits=model(x)).entropy().mean()
    (gradient,) = torch.autograd.grad(entropy, model.head.weight)
    torch.testing.assert_close(personal.state_dict()["mean.head.weight"], -gradient)


def test_a_train_method_that_returns_nothing() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def train(self, mode: bool = True) -> None:
            super().train(mode)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    assert ttpfl.Personalizer(Frozen(), some_rates(Frozen()))(torch.randn(2, 4)).shape == (2, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused() -> None:
    scripted = torch.jit.trace(make("mlp"), torch.randn(2, 6))
    with pytest.raises(ttpfl.ModelError, match="TorchScript"):
        ttpfl.Rates.zeros(scripted)


def test_life_inside_inference_mode() -> None:
    model, (a, b, c) = make("mlp"), [x for x, _ in batches("mlp")]
    personal = ttpfl.Personalizer(model, some_rates(model), "online")
    personal(a)
    with torch.inference_mode():
        state = {k: v.clone() for k, v in personal.state_dict().items()}
        other = ttpfl.Personalizer(model, some_rates(model), "online").double()
        other.load_state_dict(state)
    torch.testing.assert_close(other(b.double()).float(), personal(b), rtol=1e-4, atol=1e-4)
    assert other(c.double()).isfinite().all()


def test_huge_means_survive_half_precision() -> None:
    model = make("mlp")
    personal = ttpfl.Personalizer(model, some_rates(model), "online")
    personal(torch.randn(8, 6) * 1e3)
    assert personal.state_dict()["mean.1.running_var"].max() > 7e4
    personal.half().float()
    assert personal.state_dict()["mean.1.running_var"].isfinite().all()


def test_overflow_spoils_neither_mean_nor_health() -> None:
    model, (a, b, _) = make("mlp"), [x for x, _ in batches("mlp")]
    personal = ttpfl.Personalizer(model, some_rates(model), "online")
    personal(a)
    personal(b * 1e18)
    personal(a)
    assert all(torch.isfinite(t).all() for t in personal.adapted_state_dict().values())
    smoothed = personal.health.smoothed
    assert np.isfinite([smoothed.entropy_before, smoothed.entropy_after, smoothed.change_norm]).all()


def test_exports_with_extra_and_own_state() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

        def set_extra_state(self, state: object) -> None:
            pass

        def state_dict(self, *args: object, **kwargs: object) -> dict[str, Tensor]:
            state = super().state_dict(*args, **kwargs)
            return {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    model, x = Own(), torch.randn(5, 4)
    personal = ttpfl.Personalizer(model, some_rates(model, scale=3.0))
    logits = personal(x)
    other = Own()
    other.load_state_dict(personal.adapted_state_dict())
    torch.testing.assert_close(other(x).detach(), logits)
    assert not torch.allclose(model(x), logits)


def shuffling(data: TensorDataset, generator: torch.Generator) -> DataLoader:
    return DataLoader(data, batch_size=4, shuffle=True, generator=generator)


def with_a_sampler(data: TensorDataset, generator: torch.Generator) -> DataLoader:
    return DataLoader(data, batch_size=4, sampler=RandomSampler(data, generator=generator))


def with_a_sampler_of_batches(data: TensorDataset, generator: torch.Generator) -> DataLoader:
    sampler = RandomSampler(data, generator=generator)
    return DataLoader(data, batch_sampler=BatchSampler(sampler, batch_size=4, drop_last=False))


@pytest.mark.parametrize("make_loader", [shuffling, with_a_sampler, with_a_sampler_of_batches])
def test_a_loader_with_its_own_generator(
    make_loader: Callable[[TensorDataset, torch.Generator], DataLoader],
) -> None:
    model = make("mlp")
    data = TensorDataset(torch.randn(11, 6), torch.randint(5, (11,)))
    generator = torch.Generator().manual_seed(3)
    loader = make_loader(data, generator)
    before = generator.get_state()
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # the caller's random state plays no part
        cache = ttpfl.DirectionCache(10**8)
        results.append(ttpfl.learn_rates(model, [loader], optimizer="sgd", rounds=4, cache=cache).values)
        assert cache.misses == 3
    assert torch.equal(*results)
    assert torch.equal(generator.get_state(), before)


def test_clients_as_lists_and_dicts() -> None:
    model = make("mlp")
    x, y = torch.randn(9, 6), torch.randint(5, (9,))
    expected = ttpfl.learn_rates(model, [(x, y)], optimizer="sgd", rounds=1).values
    assert torch.equal(ttpfl.learn_rates(model, [[x, y]], optimizer="sgd", rounds=1).values, expected)
    assert torch.equal(
        ttpfl.learn_rates(model, [{"input": x, "labels": y}], optimizer="sgd", rounds=1).values, expected
    )
    with pytest.raises(ttpfl.BatchError, match="cannot be put into one batch"):
        ttpfl.learn_rates(model, [[(x[0], 1), (x[1, :2], 2)]], optimizer="sgd", rounds=1)


def test_masks_may_hold_minus_infinity() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.head(self.layer(x, src_mask=mask).mean(1))

    model = Masked()
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    logits = ttpfl.Personalizer(model, some_rates(model))(torch.randn(6, 5, 4), mask=mask)
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        {"granularity": "foo"},
        {"granularity": []},
        {"mode": "evil"},
        {"only": 7},
        {"modules": [[["x"], [3], "k", "b", False, False]]},
        {"modules": [["x", ["a"], "k", "b", False, False]] * 2},
        {"modules": [["x", [1], "k", "b", False, False]] * 2},
        {"modules": "text"},
    ],
)
def test_forged_files_with_a_valid_checksum(
    tmp_path: Path, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = ttpfl.Rates.zeros(nn.Linear(3, 2))
    real = rates_file.sealed
    monkeypatch.setattr(rates_file, "sealed", lambda card, tensors: real(card | change, tensors))
    rates.save(tmp_path / "forged")
    monkeypatch.undo()
    with pytest.raises(ttpfl.RatesFileError, match="forged"):
        ttpfl.Rates.load(tmp_path / "forged")


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r"
    ttpfl.Rates.zeros(nn.Linear(3, 2)).save(path)
    monkeypatch.setattr(rates_file, "LARGEST", 100)
    with pytest.raises(ttpfl.RatesFileError, match="too large"):
        ttpfl.Rates.load(path)
    with pytest.raises(IsADirectoryError):
        ttpfl.Rates.load(tmp_path)
