"""Global training: against a slow loop, for any number of workers, and for models of many kinds."""

import copy
import json
import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from tests.helpers.processes import environment
from tests.helpers.small_clients import (
    CLASSES,
    Noisy,
    Site,
    clients,
    cnn,
    largest_difference,
    linear,
    mlp,
    pair,
    same_state,
)
from tests.helpers.untouched import untouched
from ttpfl.core.learning import draw_cohort
from ttpfl.errors import FederationError, ModelError
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.checkpoints.callbacks import RunInfo
from ttpfl.federation.common.state import Record, RunState
from ttpfl.models.files import load_model

IMAGE = (3, 6, 6)


def run(model: nn.Module, data: Any, workers: int = 0, **options: Any) -> nn.Module:
    options = {"rounds": 3, "batch_size": 4, **options}
    return train(model, data, TrainSettings(workers=workers, **options)).model


def slow_fedavg(
    model: nn.Module,
    data: dict[str, tuple[Tensor, Tensor]],
    rounds: int,
    cohort: int | None = None,
    batch_size: int = 4,
    lr: float = 0.1,
    local: bool = False,
    drop: bool = False,
) -> nn.Module:
    """In double precision, with nothing but dictionaries; samples in their natural order."""
    state = {name: tensor.double() for name, tensor in copy.deepcopy(model).state_dict().items()}
    own: dict[str, dict[str, Tensor]] = {}
    names, buffers = list(data), {name for name, _ in model.named_buffers()}
    for number in range(rounds):
        chosen = draw_cohort(names, cohort or len(names), 0, number)
        states, weights = [], []
        for name in chosen:
            net = copy.deepcopy(model).double().train()
            net.load_state_dict(state | own.get(name, {}))
            x, y = data[name][0].double(), data[name][1]
            size = len(y) // batch_size * batch_size if drop else len(y)
            for start in range(0, size, batch_size):
                net.zero_grad()
                F.cross_entropy(net(x[start : start + batch_size]), y[start : start + batch_size]).backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= lr * p.grad
            states.append({key: value.detach().clone() for key, value in net.state_dict().items()})
            weights.append(len(y))
            if local:
                own[name] = {key: value for key, value in states[-1].items() if key in buffers}
        state = {
            key: sum(w * state[key] for w, state in zip(weights, states, strict=True)) / sum(weights)
            for key in state
        }
    result = copy.deepcopy(model).double()
    result.load_state_dict(state)
    return result


def difference(a: nn.Module, b: nn.Module) -> float:
    """Without counts of batches, which are not averaged."""
    left, right = a.state_dict(), b.state_dict()
    return max(
        float((left[k].double() - right[k].double()).abs().max()) for k in left if left[k].is_floating_point()
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cohort", [None, 2])
@pytest.mark.parametrize("fast", [False, True])
def test_fedavg_against_a_slow_loop(workers: int, cohort: int | None, fast: bool) -> None:
    options = {"cohort": cohort, "shuffle": False, "fast": fast}
    data = clients()
    got = run(linear(), data, workers, **options)
    assert difference(got, slow_fedavg(linear(), data, 3, cohort)) < 1e-6
    images = clients(shape=IMAGE)
    got = run(cnn(), images, workers, **options)
    assert difference(got, slow_fedavg(cnn(), images, 3, cohort, drop=True)) < 2e-5
    got = run(cnn().double(), {k: (x.double(), y) for k, (x, y) in images.items()}, workers, **options)
    assert difference(got, slow_fedavg(cnn(), images, 3, cohort, drop=True)) < 1e-11


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cohort", [None, 2])
def test_local_buffers_stay_with_their_client(workers: int, cohort: int | None) -> None:
    data = {name: (x.double(), y) for name, (x, y) in clients().items()}
    got = run(mlp().double(), data, workers, cohort=cohort, shuffle=False, buffers="local", rounds=4)
    expected = slow_fedavg(mlp(), data, 4, cohort, local=True, drop=True)
    assert difference(got, expected) < 1e-12
    averaged = slow_fedavg(mlp(), data, 4, cohort, drop=True)
    assert difference(expected, averaged) > 1e-4  # it does make a difference


@pytest.mark.parametrize(("make", "shape"), [(cnn, IMAGE), (mlp, (4,)), (linear, (4,))])
def test_one_client_and_one_step_is_exactly_sgd(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    x, y = pair(8, 1, shape)
    expected = copy.deepcopy(make()).train()
    F.cross_entropy(expected(x), y).backward()
    torch.optim.SGD(expected.parameters(), lr=0.2).step()
    for workers in (0, 1):
        got = run(make(), [(x, y)], workers, rounds=1, batch_size=8, lr=0.2, shuffle=False, fast=False)
        for name, tensor in expected.state_dict().items():
            if tensor.is_floating_point():
                assert torch.equal(got.state_dict()[name], tensor), name


def test_fedprox_without_mu_is_exactly_fedavg() -> None:
    options = {"momentum": 0.5, "local_epochs": 2}
    fedavg = run(mlp(dropout=0.3), clients(), **options)
    assert same_state(run(mlp(dropout=0.3), clients(), algorithm="fedprox", mu=0.0, **options), fedavg)
    assert not same_state(run(mlp(dropout=0.3), clients(), algorithm="fedprox", mu=0.5, **options), fedavg)


def test_qffl_without_q_is_the_mean_of_local_models() -> None:
    data = clients()
    alone = [run(mlp(), [pair], rounds=1, shuffle=False) for pair in data.values()]
    got = run(mlp(), data, algorithm="qffl", q=0.0, rounds=1, shuffle=False)
    for name, tensor in got.state_dict().items():
        if tensor.is_floating_point():
            mean = torch.stack([model.state_dict()[name].double() for model in alone]).mean(0)
            assert (tensor.double() - mean).abs().max() < 1e-6


def test_qffl_against_its_formula() -> None:
    q, lr, data, model = 1.5, 0.1, clients(), linear()
    w = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    steps, h = torch.zeros_like(w), 0.0
    for x, y in data.values():
        after = run(model, [(x, y)], rounds=1, shuffle=False)
        local = torch.cat([p.detach().flatten().double() for p in after.parameters()])
        loss = float(F.cross_entropy(model(x).detach().double(), y))
        step = (w - local) / lr
        steps += loss**q * step
        h += q * loss ** (q - 1) * float(step.square().sum()) + loss**q / lr
    got = run(model, data, algorithm="qffl", q=q, rounds=1, shuffle=False)
    vector = torch.cat([p.detach().flatten().double() for p in got.parameters()])
    assert (vector - (w - steps / h)).abs().max() < 1e-6


def test_qffl_refuses_a_client_whose_loss_is_not_finite() -> None:
    x, y = pair(8, 1)
    with_bad = {**clients(), "huge": (x * 1e38, y)}
    result = train(
        linear(), with_bad, TrainSettings(rounds=1, batch_size=4, algorithm="qffl", workers=0, lr=1e-3)
    )
    assert result.history[0]["failed"] == ["huge"]
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "qffl"])
def test_the_same_bits_for_any_number_of_workers(algorithm: str) -> None:
    """And in any order of completion: clients take their time, the first ones longest."""
    data: dict[str, Any] = {
        f"noisy-{number}": Noisy(one, seconds=0.02 * (number % 3))
        for number, one in enumerate(clients((9, 9, 12, 5, 5, 8)).values())
    }
    data["loader"] = DataLoader(TensorDataset(*pair(10, 1)), 4, shuffle=True, generator=torch.Generator())
    results = [
        train(
            mlp(dropout=0.5),
            data,
            TrainSettings(rounds=3, cohort=5, batch_size=4, algorithm=algorithm, workers=workers),
        )
        for workers in (0, 1, 2, 3)
    ]
    for other in results[1:]:
        assert same_state(other.model, results[0].model)
        assert other.history == results[0].history


def test_a_client_weighs_what_it_has_however_it_is_given(tmp_path: Path) -> None:
    """Also with several epochs, and with data of unknown size."""

    class Silent(Site):
        def size(self, part: str) -> int:
            raise OSError("the size is unknown")

    big, small = pair(12, 1), pair(4, 2)
    expected = run(linear(), [big, small], shuffle=False, local_epochs=4)
    for same in (
        DataLoader(TensorDataset(*big), 4),
        Subset(TensorDataset(*big), range(12)),
        Silent("big", big, tmp_path),
    ):
        assert (
            largest_difference(run(linear(), [same, small], shuffle=False, local_epochs=4), expected) < 1e-7
        )


def test_a_batchnorm_that_counts_its_batches() -> None:
    """Without momentum, statistics depend on how many batches there were: of this client alone."""

    def model() -> nn.Module:
        net = mlp()
        net[1] = nn.BatchNorm1d(6, momentum=None)
        return net

    first = run(model(), clients())
    for workers in (1, 2, 3):
        assert same_state(run(model(), clients(), workers), first)


def test_nothing_of_the_users_is_touched() -> None:
    model = mlp(dropout=0.5)
    F.cross_entropy(model(torch.randn(4, 4)), torch.zeros(4, dtype=torch.long)).backward()
    loader = DataLoader(TensorDataset(*pair(10, 1)), 4, shuffle=True, generator=torch.Generator())
    data = [Noisy(pair(8, 2)), loader, pair(8, 3)]
    numpy_state, own = str(np.random.get_state()), loader.generator.get_state()  # noqa: NPY002
    for workers in (0, 2):
        with untouched(model):
            got = run(model, data, workers, algorithm="qffl", rounds=2)
        assert not got.training
        assert str(np.random.get_state()) == numpy_state  # noqa: NPY002
        assert torch.equal(loader.generator.get_state(), own)


class Odd(nn.Module):
    """A frozen part, a shared weight, a mask with -inf, and a buffer that is replaced in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.randn(4) / 3, requires_grad=False)
        self.activation = lambda x: F.relu(x)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf"), 0.0]))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.5 * self.seen + x.mean()
        logits = self.head(self.activation(self.second(self.first(x) * self.frozen)))
        return logits + self.mask.clamp(min=-5)


def test_odd_models() -> None:
    torch.manual_seed(0)
    model = Odd()
    with untouched(model):
        results = [train(model, clients(), TrainSettings(rounds=2, batch_size=4, workers=w)) for w in (0, 2)]
    assert same_state(results[0].model, results[1].model)
    got = results[0].model
    assert torch.equal(got.frozen, model.frozen)
    assert torch.equal(got.mask, model.mask)
    assert got.first.weight is got.second.weight
    assert not torch.equal(got.first.weight, model.first.weight)
    assert float(got.seen) != 0
    assert all(not record["failed"] for record in results[0].history)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    data = {name: (x.to(dtype), y) for name, (x, y) in clients().items()}
    results = [run(linear().to(dtype), data, workers) for workers in (0, 2)]
    assert same_state(*results)
    assert results[0].weight.dtype == dtype
    assert difference(results[0], run(linear(), clients())) < (0.05 if dtype == torch.bfloat16 else 1e-6)


def test_workers_of_a_dataloader() -> None:
    def data() -> list[Any]:
        return [DataLoader(Noisy(pair(8, n)), 4, shuffle=True, num_workers=1) for n in range(2)]

    results = [train(linear(), data(), TrainSettings(rounds=1, workers=workers)) for workers in (0, 2)]
    assert all(not result.history[0]["failed"] for result in results)
    assert same_state(results[0].model, results[1].model)


def test_after_gradients_in_the_main_process() -> None:
    """Autograd's threads and forked processes do not always go together."""
    torch.set_num_threads(2)
    F.conv2d(torch.randn(8, 3, 32, 32), torch.randn(8, 3, 3, 3, requires_grad=True)).sum().backward()
    assert same_state(
        run(cnn(), clients(shape=IMAGE), workers=2), run(cnn(), clients(shape=IMAGE), workers=0)
    )
    assert torch.get_num_threads() == 2


def test_workers_import_hardly_anything() -> None:
    """What they would load each for themselves costs time and memory, times the number of workers."""
    code = (
        "import sys, os, torch; from torch import nn; from ttpfl.federation import train, TrainSettings\n"
        "class Site:\n"
        "    id, before = 'a', None\n"
        "    def size(self, part): return 4\n"
        "    def validation(self): return torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)\n"
        "    def train(self):\n"
        "        now = set(sys.modules)\n"
        "        if self.before is not None: print(*sorted(now - self.before), flush=True)\n"
        "        self.before = now\n"
        "        return self.validation()\n"
        "train(nn.Linear(2, 2), [Site()], TrainSettings(rounds=2, workers=1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) < 10


@pytest.mark.parametrize("kept", [False, True])
def test_only_the_cohort_is_touched(tmp_path: Path, kept: bool) -> None:
    """A round costs the same for 10 clients and for 100,000."""

    class Many:
        def __init__(self, count: int) -> None:
            self.count, self.asked = count, set[int]()

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, index: int) -> Any:
            self.asked.add(index)
            return pair(4, index)

        def __iter__(self) -> Any:
            raise AssertionError("not all of them are needed")

    many = Many(100_000)
    settings = TrainSettings(rounds=2, cohort=3, batch_size=4, workers=0)
    result = train(linear(), many, settings, run_dir=tmp_path if kept else None)  # type: ignore[arg-type]
    cohorts = [draw_cohort(range(100_000), 3, 0, number) for number in range(2)]
    # The first one is asked whether clients have names, where a checkpoint must hold them.
    assert many.asked == {*cohorts[0], *cohorts[1], *([0] if kept else [])}
    assert [record["clients"] for record in result.history] == [3, 3]


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_client_weighs_as_much_as_it_has_in_every_form(epochs: int) -> None:
    """Also where batches are left out: 39 samples behind BatchNorm, in batches of 20."""
    (x, y), other = pair(39, 1), pair(20, 2)
    settings = TrainSettings(rounds=1, batch_size=20, local_epochs=epochs, shuffle=False, workers=0)

    def with_form(form: Any) -> nn.Module:
        return train(mlp(), [form, other], settings).model

    tensors = with_form((x, y))
    assert same_state(with_form(DataLoader(TensorDataset(x, y), batch_size=20)), tensors)
    assert same_state(with_form(list(zip(x, y, strict=True))), tensors)
    alone = [train(mlp(), [one], settings).model.state_dict() for one in ((x, y), other)]
    for name, tensor in tensors.state_dict().items():
        if tensor.is_floating_point():
            expected = (39 * alone[0][name].double() + 20 * alone[1][name].double()) / 59
            assert torch.allclose(tensor.double(), expected, rtol=1e-6, atol=1e-7)


def test_accuracy_is_told_of_classes_alone() -> None:
    """Who predicts numbers has losses, but is never right or wrong."""
    data = {name: (x, x.sum(1, keepdim=True)) for name, (x, _) in clients().items()}
    settings = TrainSettings(rounds=2, batch_size=4, workers=0)
    history = train(nn.Linear(4, 1), data, settings, loss=F.mse_loss).history
    for record in history:
        assert {"train_loss", "validation_loss"} < record.keys()
        assert not any(name.endswith("accuracy") for name in record)
    rates = learn(
        nn.Linear(4, 1), data, LearnSettings(rounds=1, lr=0.001, workers=0), loss=F.mse_loss, objective=spread
    )
    assert "validation_loss" in rates.history[0]
    assert "validation_accuracy" not in rates.history[0]


def spread(numbers: Tensor) -> Tensor:
    return numbers.var()


def test_history(tmp_path: Path) -> None:
    data = clients((8, 12, 4))
    result = train(
        linear(), data, TrainSettings(rounds=4, cohort=2, batch_size=4, workers=0), run_dir=tmp_path
    )
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == result.history
    assert [record["round"] for record in lines] == [0, 1, 2, 3]
    numbers = sum(p.numel() for p in linear().parameters())
    for number, record in enumerate(lines):
        assert record["clients"] == 2
        assert record["failed"] == []
        assert not record["abandoned"]
        assert record["bytes"] == 2 * 2 * 4 * numbers  # two clients, down and up, four bytes
        assert record["bytes_total"] == (number + 1) * record["bytes"]
        assert 0 <= record["validation_accuracy"] <= 1
    chosen = draw_cohort(list(data), 2, 0, 0)
    x, y = (torch.cat(parts) for parts in zip(*(data[name] for name in chosen), strict=True))
    expected = float(F.cross_entropy(linear()(x).detach().double(), y))
    assert lines[0]["validation_loss"] == pytest.approx(expected, rel=1e-6)
    timing = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert [line["round"] for line in timing] == [0, 1, 2, 3]


def test_the_model_file(tmp_path: Path) -> None:
    settings = TrainSettings(rounds=1, batch_size=4, workers=0)
    card = {"build": {"name": "torch.nn:Linear", "in_features": 4, "out_features": CLASSES}}
    result = train(linear(), clients(), settings, run_dir=tmp_path, card=card)
    loaded, card = load_model(tmp_path / "model.safetensors", linear())
    assert same_state(loaded, result.model)
    assert card["trained"]["rounds"] == 1
    with pytest.raises(ModelError, match="did not come with ttpfl"):  # a file does not decide which code runs
        load_model(tmp_path / "model.safetensors")


def test_validation_can_be_rare() -> None:
    history = train(
        linear(), clients(), TrainSettings(rounds=4, batch_size=4, workers=0, validate_every=2)
    ).history
    assert ["validation_loss" in record for record in history] == [True, False, True, False]


def test_early_stopping_gives_the_best_model() -> None:
    seen: list[tuple[nn.Module, float]] = []

    class Watch(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            seen.append((state.vector.clone(), record["validation_loss"]))

    data = clients((4, 4))
    settings = TrainSettings(rounds=50, batch_size=4, workers=0, lr=30.0, patience=2)
    result = train(linear(), data, settings, callbacks=[Watch()])
    losses = [record["validation_loss"] for record in result.history]
    best = min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == best + 3 < 50
    x, y = (torch.cat(parts) for parts in zip(*data.values(), strict=True))
    assert float(F.cross_entropy(result.model(x).detach(), y)) == pytest.approx(losses[best], rel=1e-5)


def test_early_stopping_that_never_comes_changes_nothing() -> None:
    """As long as the loss falls: the last model is never validated, but it is returned."""
    for rounds in (1, 4):
        result = train(
            linear(), clients(), TrainSettings(rounds=rounds, batch_size=4, workers=0, lr=0.01, patience=3)
        )
        losses = [record["validation_loss"] for record in result.history]
        assert losses == sorted(losses, reverse=True)
        assert same_state(result.model, run(linear(), clients(), rounds=rounds, lr=0.01))


def test_evaluation_on_target_clients_only_when_asked() -> None:
    asked = []

    def evaluate(model: nn.Module) -> dict[str, Any]:
        assert not model.training
        asked.append(copy.deepcopy(model))
        return {"accuracy": np.float32(0.5), "loss": torch.tensor(2.0)}

    options = {"rounds": 5, "batch_size": 4, "workers": 0}
    train(linear(), clients(), TrainSettings(**options), evaluate=evaluate)
    assert not asked
    result = train(linear(), clients(), TrainSettings(eval_every=2, **options), evaluate=evaluate)
    assert [record.get("target") for record in result.history] == [
        None if number % 2 == 0 else {"accuracy": 0.5, "loss": 2.0} for number in range(5)
    ]
    assert same_state(asked[0], run(linear(), clients(), rounds=2))
    with pytest.raises(FederationError, match="pass evaluate="):
        train(linear(), clients(), TrainSettings(eval_every=2, **options))


def test_callbacks_are_closed_whatever_keeps_a_run_from_beginning(tmp_path: Path) -> None:
    class Held(Callback):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    def no_engine(length: int, dtype: torch.dtype) -> Any:
        raise FederationError("no site is there")

    def closed(message: str, **options: Any) -> list[int]:
        held, own = [Held(), Held()], {"rounds": 1, "batch_size": 4, "workers": 0}
        settings = TrainSettings(**{**own, **options.pop("settings", {})})
        with pytest.raises(FederationError, match=message) if message else nullcontext():
            train(linear(), clients(), settings, callbacks=held, **options)
        return [one.closed for one in held]

    assert closed("pass evaluate=", settings={"eval_every": 1}) == [1, 1]
    assert closed("no site is there", engine=no_engine) == [1, 1]
    assert closed("pass run_dir=", resume=True) == [1, 1]
    assert closed("", run_dir=tmp_path) == [1, 1]
    assert closed("already has a run", run_dir=tmp_path) == [1, 1]
    assert closed("", run_dir=tmp_path, resume=True) == [1, 1]  # nothing is left to do


def test_callbacks_see_everything_and_are_closed_at_last() -> None:
    class Notes(Callback):
        def __init__(self, trouble: bool = False) -> None:
            self.trouble, self.calls = trouble, list[str]()

        def on_start(self, info: RunInfo, state: RunState) -> None:
            assert (info.kind, info.clients, info.cohort, info.vector_numbers) == ("train", 4, 4, 15)
            self.calls.append("start")

        def on_round(self, state: RunState, record: Record) -> None:
            self.calls.append(f"round {record['round']}")
            assert state.history[-1] is record
            if self.trouble:
                raise ZeroDivisionError("my own mistake")

        def on_end(self, state: RunState) -> None:
            self.calls.append("end")

        def close(self) -> None:
            self.calls.append("close")

    settings = TrainSettings(rounds=2, batch_size=4, workers=2)
    good, bad = Notes(), Notes(trouble=True)
    train(linear(), clients(), settings, callbacks=[good])
    assert good.calls == ["start", "round 0", "round 1", "end", "close"]
    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        train(linear(), clients(), settings, callbacks=[bad])
    assert bad.calls == ["start", "round 0", "close"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fedsgd"}, "fedavg, fedprox, qffl"),
        ({"cohort": 9}, "cohort is 9, but there are only 4"),
        ({"cohort": 0}, "cohort must be a positive integer, got 0"),
        ({"rounds": 0}, "rounds must be a positive integer, got 0"),
        ({"workers": -1}, "workers must be a non-negative integer, got -1"),
        ({"lr": -1.0}, "lr must be a positive number, got -1"),
        ({"lr": math.nan}, "lr must be a positive number, got nan"),
        ({"local_epochs": 0}, "local_epochs must be a positive integer, got 0"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
        ({"momentum": -1.0}, "momentum must be a non-negative number, got -1.0"),
        ({"buffers": "mine"}, "'mine'"),
        ({"min_reply_fraction": 1.5}, "min_reply_fraction must be a number from 0 to 1, got 1.5"),
        ({"algorithm": "fedprox", "mu": -1.0}, "mu must be a non-negative number, got -1"),
        ({"patience": 3, "validate_every": 2}, "validate_every=1"),
    ],
    ids=str,
)
def test_senseless_choices(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        train(linear(), clients(), TrainSettings(**options))


def test_no_clients() -> None:
    with pytest.raises(FederationError, match="no clients"):
        train(linear(), [])


def test_training_helps() -> None:
    history = train(cnn(), clients(shape=IMAGE), TrainSettings(rounds=8, batch_size=4, workers=2)).history
    assert history[-1]["validation_loss"] < history[0]["validation_loss"]
    assert largest_difference(cnn(), cnn()) == 0
