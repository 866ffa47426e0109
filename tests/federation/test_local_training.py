"""A client's training: against SGD written out, for data of every form."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from tests.helpers.networks import GroupNormNet, SmallViT, ViewNet
from tests.helpers.small_clients import (
    CLASSES,
    FEATURES,
    Noisy,
    cnn,
    largest_difference,
    linear,
    mlp,
    pair,
    same_state,
)
from tests.helpers.untouched import untouched
from ttpfl.errors import BatchError
from ttpfl.federation.clients.local_training import LocalTrainer, shuffled
from ttpfl.federation.settings import TrainSettings


def trained(
    model: nn.Module, data: Any, seed: tuple[int, ...] = (0,), proximal: float = 0.0, **settings: Any
) -> nn.Module:
    own = copy.deepcopy(model)
    LocalTrainer(own, TrainSettings(**settings), proximal).train(data, seed)
    return own


def slow_sgd(
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    mu: float = 0.0,
) -> nn.Module:
    """Formulas instead of an optimizer."""
    model = copy.deepcopy(model).train()
    begin = [p.detach().clone() for p in model.parameters()]
    speed = [torch.zeros_like(p) for p in begin]
    for x, y in batches:
        loss = -F.log_softmax(model(x), 1)[torch.arange(len(y)), y].mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g, b, v in zip(model.parameters(), gradients, begin, speed, strict=True):
                v.mul_(momentum).add_(g + mu * (p - b) + weight_decay * p)
                p.sub_(lr * v)
    return model


@pytest.mark.parametrize(("make", "shape"), [(cnn, (3, 6, 6)), (mlp, (FEATURES,)), (linear, (FEATURES,))])
def test_one_step_is_exactly_torch_sgd(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    model, (x, y) = make(), pair(8, 1, shape)
    expected = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.3)
    F.cross_entropy(expected(x), y).backward()
    optimizer.step()
    got = trained(model, (x, y), batch_size=8, lr=0.3, shuffle=False, fast=False)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(got.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"mu": 0.7},
        {"momentum": 0.5, "weight_decay": 0.2, "mu": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize(("make", "shape"), [(cnn, (3, 6, 6)), (mlp, (FEATURES,))])
def test_epochs_against_formulas_in_double_precision(
    make: Callable[[], nn.Module], shape: tuple[int, ...], options: dict[str, float]
) -> None:
    model, (x, y) = make().double(), pair(12, 2, shape)
    batches = [(b.double(), c) for b, c in zip(x.split(4), y.split(4), strict=True)] * 3
    expected = slow_sgd(model, batches, lr=0.1, **options)
    config = {("proximal" if name == "mu" else name): value for name, value in options.items()}
    for fast in (False, True):
        got = trained(
            model, (x.double(), y), local_epochs=3, batch_size=4, lr=0.1, shuffle=False, fast=fast, **config
        )
        assert all(
            torch.allclose(a, b, rtol=0, atol=1e-12)
            for a, b in zip(got.parameters(), expected.parameters(), strict=True)
        )
        floats = [b for b in expected.buffers() if b.is_floating_point()]
        for a, b in zip([b for b in got.buffers() if b.is_floating_point()], floats, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_no_proximal_term_is_the_same_to_the_bit() -> None:
    data = pair(11, 3)
    assert same_state(trained(mlp(), data, batch_size=4), trained(mlp(), data, batch_size=4, proximal=0.0))
    assert not same_state(
        trained(mlp(), data, batch_size=4), trained(mlp(), data, batch_size=4, proximal=0.5)
    )


def test_incomplete_batches_are_left_out_behind_batchnorm_only() -> None:
    x, y = pair(10, 4)
    options = {"batch_size": 4, "shuffle": False, "fast": False}
    assert same_state(trained(mlp(), (x, y), **options), trained(mlp(), (x[:8], y[:8]), **options))
    assert not same_state(trained(linear(), (x, y), **options), trained(linear(), (x[:8], y[:8]), **options))
    assert LocalTrainer(mlp(), TrainSettings(batch_size=4)).train((x, y), (0,)).samples == 8
    assert LocalTrainer(linear(), TrainSettings(batch_size=4)).train((x, y), (0,)).samples == 10
    # The only one is better than nothing.
    assert LocalTrainer(mlp(), TrainSettings(batch_size=40)).train((x, y), (0,)).samples == 10


@pytest.mark.parametrize(("batch_size", "samples"), [(3, 9), (4, 8), (10, 10), (32, 10)])
def test_batches_of_a_dataloader_hold(batch_size: int, samples: int) -> None:
    loader = DataLoader(TensorDataset(*pair(10, 4)), batch_size=batch_size)
    for make, expected in ((mlp, samples), (linear, 10)):
        sums = LocalTrainer(make(), TrainSettings(batch_size=20)).train(loader, (0,))
        assert sums.samples == expected
    sampled = DataLoader(TensorDataset(*pair(10, 4)), batch_sampler=[[0, 1, 2], [3, 4], [5, 6, 7, 8]])
    assert LocalTrainer(mlp(), TrainSettings()).train(sampled, (0,)).samples == 9


def forms() -> dict[str, Any]:
    """The same data in all forms that keep their order."""
    x, y = pair(10, 5)
    return {
        "pair": (x, y),
        "list": [x, y],
        "dict": {"input": x, "labels": y},
        "tensors": TensorDataset(x, y),
        "samples": list(zip(x, y, strict=True)),
        "loader": DataLoader(TensorDataset(x, y), batch_size=4),
        "one thing of two": ((x,), y),
    }


@pytest.mark.parametrize(
    ("form", "shuffle"),
    # A DataLoader's own order holds: it is never shuffled here.
    [(form, shuffle) for form in forms() for shuffle in (False, True) if not (form == "loader" and shuffle)],
)
def test_data_in_every_form(form: str, shuffle: bool) -> None:
    options = {"batch_size": 4, "local_epochs": 2, "shuffle": shuffle}
    expected = trained(linear(), forms()["pair"], **options)
    assert same_state(trained(linear(), forms()[form], **options), expected)
    left = LocalTrainer(linear(), TrainSettings(batch_size=4))
    assert left.evaluate(forms()[form], (0,)) == left.evaluate(forms()["pair"], (0,))


def test_several_inputs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(a + b)

    x, y = pair(10, 5)
    for shuffle in (False, True):
        expected = trained(linear(), (x, y), batch_size=4, shuffle=shuffle, fast=False)
        for data in (TensorDataset(x / 2, x / 2, y), {"a": x / 2, "b": x / 2, "y": y}, ((x / 2, x / 2), y)):
            got = trained(Sum(), data, batch_size=4, shuffle=shuffle, fast=False)
            assert torch.allclose(got.head.weight, expected.weight, atol=1e-6)


def loaders() -> dict[str, Callable[[], DataLoader[Any]]]:
    data = TensorDataset(*pair(12, 6))

    def own() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    return {
        "shuffled": lambda: DataLoader(data, 4, shuffle=True),
        "own generator": lambda: DataLoader(data, 4, shuffle=True, generator=own()),
        "own sampler": lambda: DataLoader(data, 4, sampler=RandomSampler(data, generator=own())),
        "weighted": lambda: DataLoader(
            data, 4, sampler=WeightedRandomSampler([1.0] * 12, 12, generator=own())
        ),
        "noisy": lambda: DataLoader(Noisy(pair(12, 6)), 4, shuffle=True),
    }


@pytest.mark.parametrize("kind", loaders())
def test_everything_random_follows_from_the_seed(kind: str) -> None:
    loader, model = loaders()[kind](), linear()
    with untouched(model):
        first = trained(model, loader, (1, 2))
        assert same_state(trained(model, loader, (1, 2)), first)  # whatever it was used for before
        assert not same_state(trained(model, loader, (1, 3)), first)
    own = loader.generator.get_state() if loader.generator is not None else None
    trained(linear(), loader, (1, 2))
    assert own is None or torch.equal(loader.generator.get_state(), own)


def test_dropout_and_order_follow_from_the_seed() -> None:
    data, model = pair(12, 7), mlp(dropout=0.5)
    with untouched(model):
        first = trained(model, data, (0, 1), batch_size=4)
    torch.rand(5)
    assert same_state(trained(model, data, (0, 1), batch_size=4), first)
    assert not same_state(trained(model, data, (0, 2), batch_size=4), first)


@pytest.mark.parametrize("make", [GroupNormNet, SmallViT, ViewNet])
def test_fast_means_the_same(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, size = make(), {GroupNormNet: 10, SmallViT: 16, ViewNet: 8}[make]
    x, y = torch.randn(8, 3, size, size), torch.randint(CLASSES, (8,))
    plain, fast = (trained(model, (x, y), batch_size=4, lr=0.05, fast=fast) for fast in (False, True))
    assert largest_difference(plain, fast) < 1e-5


class Strided(nn.Module):
    """Looks at how its input lies in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(108, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        assert x.stride()[-1] == 1
        return self.head(x.flatten(1))


def test_a_model_that_depends_on_the_layout() -> None:
    data = pair(8, 8, (3, 6, 6))
    torch.manual_seed(0)
    model = Strided()
    assert same_state(trained(model, data, fast=True), trained(model, data, fast=False))


def test_a_client_that_does_not_fit_decides_nothing_for_others() -> None:
    data = pair(8, 8, (3, 6, 6))
    trainer = LocalTrainer(cnn(), TrainSettings(batch_size=4))
    with pytest.raises(
        BatchError, match=r"cannot process this batch \(input: torch.float32 \(4, 2, 6, 6\)\)"
    ):
        trainer.train(pair(8, 8, (2, 6, 6)), (0,))
    trainer.train(data, (0,))
    assert same_state(trainer.model, trained(cnn(), data, batch_size=4))


def test_gradients_are_on_whatever_the_caller_does() -> None:
    expected = trained(linear(), pair(8, 1))
    with torch.no_grad():
        assert same_state(trained(linear(), pair(8, 1)), expected)


def test_evaluation_is_that_of_the_model_as_it_is() -> None:
    model, (x, y) = mlp(dropout=0.5), pair(10, 9)
    sums = LocalTrainer(model, TrainSettings(batch_size=4)).evaluate((x, y), (0,))
    logits = model.eval()(x).detach().double()
    assert sums.samples == 10
    assert sums.mean_loss == pytest.approx(float(F.cross_entropy(logits, y)), rel=1e-6)
    assert sums.right == int((logits.argmax(1) == y).sum())


@pytest.mark.parametrize("fast", [False, True])
def test_a_model_that_works_in_place_does_not_change_the_clients_data(fast: bool) -> None:
    x, y = pair(8, 1, (3, 6, 6))
    kept = x.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), cnn())
    trainer = LocalTrainer(model, TrainSettings(fast=fast, shuffle=False))
    trainer.train((x, y), (0,))
    trainer.evaluate((x, y), (0,))
    assert torch.equal(x, kept)


def test_a_loss_that_is_not_one_number_is_said() -> None:
    trainer = LocalTrainer(linear(), TrainSettings(), loss=partial(F.cross_entropy, reduction="none"))
    for work in (trainer.train, trainer.evaluate):
        with pytest.raises(BatchError, match=r"loss= returns a tensor of shape \(4,\)"):
            work(pair(4, 1), (0,))


def test_no_data() -> None:
    x, y = pair(4, 1)
    with pytest.raises(BatchError, match="no data"):
        LocalTrainer(linear(), TrainSettings()).train((x[:0], y[:0]), (0,))


def test_shuffled_is_a_permutation_that_keeps_pairs_together() -> None:
    x = torch.arange(20)
    a, b = shuffled((x, x * 3))
    assert torch.equal(a.sort().values, x)
    assert torch.equal(b, a * 3)
    assert not torch.equal(a, x)
