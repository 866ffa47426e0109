"""Rate learning: `federation.learn` and `learn_rates` are one loop, and the plain one to the bit."""

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import ttpfl
from tests.helpers.networks import CLASSES, NETWORKS, make
from tests.helpers.plain_loop import learn_plainly
from tests.helpers.small_clients import Bad, Noisy, clients, linear, mlp, pair
from tests.helpers.untouched import untouched
from ttpfl.core.network import weights_hash
from ttpfl.errors import FederationError
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.checkpoints.callbacks import RunInfo
from ttpfl.federation.checkpoints.progress import communication
from ttpfl.util.threads import threads


def images(name: str, count: int = 5) -> dict[str, Any]:
    torch.manual_seed(5)
    inputs = NETWORKS[name][1]
    return {f"site-{n}": (inputs(9 + n), torch.randint(CLASSES, (9 + n,))) for n in range(count)}


@pytest.mark.parametrize("workers", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["batch", "online"])
def test_the_same_bits_as_the_plain_loop(workers: int | None, mode: Any) -> None:
    """No workers: `learn_rates`."""
    model, data = make("mlp"), images("mlp")
    shared = {"rounds": 3, "cohort": 4, "lr": 0.2, "batch_size": 4, "seed": 2, "local_epochs": 2}
    expected = learn_plainly(model, data, mode=mode, **shared)
    with untouched(model):
        if workers is None:
            got = ttpfl.learn_rates(model, data, mode=mode, **shared)
        else:
            got = learn(
                model, data, LearnSettings(optimizer="sgd", mode=mode, workers=workers, **shared)
            ).rates
    assert torch.equal(got.values, expected.values)
    assert got.values.any()
    assert got.mode == mode
    assert got.weights_hash == weights_hash(model)
    assert got.learned["clients"] == 5
    assert got.learned["local_epochs"] == 2
    assert got.learned["checked"] == pytest.approx(expected.checked)


def test_both_ways_with_all_kinds_of_rates() -> None:
    """Where the last rates do harm, too: then both go back to the round that the plain loop goes back to."""
    model, data = make("cnn18"), images("cnn18", 4)
    for granularity, only, lr, check in (
        ("layer", None, 0.3, True),
        ("kind", "params", 4.0, True),
        ("tensor", None, 4.0, True),
        ("tensor", "stats", 0.1, False),
    ):
        begin = ttpfl.Rates.zeros(model, granularity, only)
        chosen: dict[str, Any] = {"rounds": 5, "cohort": 2, "lr": lr, "batch_size": 5, "check": check}
        expected = learn_plainly(model, data, rates=begin, **chosen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ttpfl.RatesWarning)
            one = ttpfl.learn_rates(model, data, rates=begin, **chosen)
            other = learn(model, data, LearnSettings(optimizer="sgd", workers=0, **chosen), rates=begin).rates
        for got in (one, other):
            assert torch.equal(got.values, expected.values)
            assert got.learned["rounds"] == expected.rounds
            assert got.learned.get("checked") == (expected.checked and pytest.approx(expected.checked))


@pytest.mark.parametrize("granularity", ["layer", "kind"])
def test_convolutions_granularity_and_a_warm_start(granularity: Any) -> None:
    model, data = make("cnn18"), images("cnn18", 3)
    begin = ttpfl.Rates.zeros(model, granularity=granularity)
    begin.values += 0.01
    expected = learn_plainly(model, data, rounds=2, batch_size=5, rates=begin)
    got = learn(
        model, data, LearnSettings(optimizer="sgd", rounds=2, batch_size=5, workers=2), rates=begin
    ).rates
    assert torch.equal(got.values, expected.values)
    assert torch.equal(begin.values, torch.full_like(begin.values, 0.01))


@pytest.mark.parametrize("only", ["params", "stats"])
def test_only_some_modules(only: Any, tmp_path: Path) -> None:
    """The ablation: the same as beginning with zeros for these modules, and part of what a run is."""
    model, data = make("mlp"), images("mlp")
    begin = ttpfl.Rates.zeros(model, only=only)
    expected = learn_plainly(model, data, rounds=2, batch_size=4, rates=begin)
    settings = LearnSettings(optimizer="sgd", rounds=2, batch_size=4, workers=0, only=only)
    got = learn(model, data, settings, run_dir=tmp_path).rates
    assert torch.equal(got.values, expected.values)
    assert got.names == begin.names
    assert ttpfl.Rates.load(tmp_path / "rates.safetensors", model).only == only
    everything = LearnSettings(optimizer="sgd", rounds=3, batch_size=4, workers=0)
    with pytest.raises(FederationError, match=f"only was '{only}', now it is None"):
        learn(model, data, everything, run_dir=tmp_path, resume=True)


def test_only_and_rates_to_begin_with() -> None:
    model, data = make("mlp"), images("mlp", 2)
    some, everything = ttpfl.Rates.zeros(model, only="stats"), ttpfl.Rates.zeros(model)
    for begin, only, agreed in (
        (some, None, True),
        (some, "stats", True),
        (everything, "all", True),
        (None, "all", True),
        (some, "all", False),
        (some, "params", False),
        (everything, "params", False),
    ):
        settings = LearnSettings(optimizer="sgd", rounds=1, batch_size=4, workers=0, only=only)
        if agreed:
            assert learn(model, data, settings, rates=begin).rates.only == (begin and begin.only)
        else:
            with pytest.raises(FederationError, match=f"only is '{only}', but the initial rates"):
                learn(model, data, settings, rates=begin)


def test_the_cache_changes_nothing() -> None:
    model, data = make("cnn18"), images("cnn18", 4)
    results = [
        learn(
            model,
            data,
            LearnSettings(optimizer="sgd", rounds=3, batch_size=5, workers=workers, direction_cache=size),
        )
        for workers, size in ((0, 0), (0, 300_000), (2, 2**30), (2, 100_000))
    ]
    for other in results[1:]:
        assert torch.equal(other.rates.values, results[0].rates.values)
        assert other.history == results[0].history


def test_random_data_and_dataloaders() -> None:
    def data() -> dict[str, Any]:
        own, samplers = torch.Generator().manual_seed(4), torch.Generator().manual_seed(5)
        sampled = TensorDataset(*pair(10, 5))
        return {
            "noisy": Noisy(pair(9, 1), seconds=0.02),
            "loader": DataLoader(TensorDataset(*pair(10, 2)), 4, shuffle=True),
            "own": DataLoader(TensorDataset(*pair(10, 3)), 4, shuffle=True, generator=own),
            "sampler": DataLoader(sampled, 4, sampler=RandomSampler(sampled, generator=samplers)),
            "dict": dict(zip(("input", "labels"), pair(7, 4), strict=True)),
        }

    model = mlp()
    results = []
    for workers in (0, 1, 2, 3):
        with untouched(model):
            results.append(
                learn(model, data(), LearnSettings(optimizer="sgd", rounds=3, batch_size=4, workers=workers))
            )
    for other in results[1:]:
        assert torch.equal(other.rates.values, results[0].rates.values)
        assert other.history == results[0].history
    fixed = {name: client for name, client in data().items() if name != "noisy"}
    expected = learn_plainly(model, fixed, rounds=3, batch_size=4)
    got = learn(model, fixed, LearnSettings(optimizer="sgd", rounds=3, batch_size=4, workers=2)).rates
    assert torch.equal(got.values, expected.values)


@pytest.mark.parametrize("average", ["median", "trimmed"])
def test_robust_averages(average: str) -> None:
    model, data = mlp(), clients((8, 8, 8, 8, 8))
    turns = torch.stack([learn_plainly(model, [one], rounds=1, batch_size=4).values for one in data.values()])
    options = {"rounds": 1, "batch_size": 4, "workers": 2, "average": average, "trim": 0.2}
    got = learn(model, data, LearnSettings(optimizer="sgd", **options)).rates.values
    ordered = turns.double().sort(0).values
    expected = ordered[2] if average == "median" else ordered[1:4].mean(0)
    assert torch.allclose(got.double(), expected, rtol=0, atol=1e-9)


def test_traffic_is_the_model_once_and_the_rates_every_round() -> None:
    model, data = mlp(), clients((8, 8, 8))
    rounds = 5
    history = learn(
        model, data, LearnSettings(optimizer="sgd", rounds=rounds, batch_size=4, workers=0)
    ).history
    numbers = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    rates = len(ttpfl.Rates.zeros(model).values)
    assert history[-1]["bytes_total"] == 3 * 4 * (numbers + 2 * rounds * rates)
    assert history[0]["bytes"] - history[1]["bytes"] == 3 * 4 * numbers
    text = communication(RunInfo("learn", rounds, 3, 3, numbers, rates))
    assert f"D + 2Td = {numbers + 2 * rounds * rates:,}" in text
    assert f"2TD = {2 * rounds * numbers:,}" in text


def test_traffic_with_partial_participation() -> None:
    """Who comes for the first time gets the model; also after a resume."""
    history = learn(
        mlp(), clients((4,) * 6), LearnSettings(optimizer="sgd", rounds=6, cohort=2, batch_size=4, workers=0)
    ).history
    rates = len(ttpfl.Rates.zeros(mlp()).values)
    numbers = sum(t.numel() for t in mlp().state_dict().values() if t.is_floating_point())
    reached: set[int] = set()
    for record in history:
        cohort = set(ttpfl.core.learning.draw_cohort(range(6), 2, 0, record["round"]))
        assert record["bytes"] == 4 * (2 * 2 * rates + numbers * len(cohort - reached))
        reached |= cohort


def test_files_and_resume(tmp_path: Path) -> None:
    model, data = mlp(), clients()

    def settings(rounds: int) -> LearnSettings:
        return LearnSettings(optimizer="sgd", rounds=rounds, cohort=3, batch_size=4, workers=2, mode="online")

    whole = learn(model, data, settings(4), run_dir=tmp_path / "whole")
    learn(model, data, settings(2), run_dir=tmp_path / "parts")
    parts = learn(model, data, settings(4), run_dir=tmp_path / "parts", resume=True)
    assert torch.equal(parts.rates.values, whole.rates.values)
    assert parts.history == whole.history
    for folder in ("whole", "parts"):
        lines = (tmp_path / folder / "history.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == whole.history
        loaded = ttpfl.Rates.load(tmp_path / folder / "rates.safetensors", model)
        assert torch.equal(loaded.values, whole.rates.values)
        assert loaded.mode == "online"


def test_resume_with_other_rates_is_refused(tmp_path: Path) -> None:
    model, data = mlp(), clients()
    learn(model, data, LearnSettings(optimizer="sgd", rounds=1, batch_size=4, workers=0), run_dir=tmp_path)
    settings = LearnSettings(optimizer="sgd", rounds=2, batch_size=4, workers=0)
    begin = ttpfl.Rates.zeros(model)
    begin.values += 1
    with pytest.raises(FederationError, match="begin was"):
        learn(model, data, settings, run_dir=tmp_path, resume=True, rates=begin)
    with pytest.raises(FederationError, match="model was"):
        learn(mlp(1), data, settings, run_dir=tmp_path, resume=True)


def test_resume_with_another_network_of_the_same_weights_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A slope is no weight; checkpoints of versions that did not note it are taken, with a warning."""

    def leaky(slope: float) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(slope), nn.Linear(6, 3))

    def go(slope: float, rounds: int, **options: Any) -> torch.Tensor:
        settings = LearnSettings(optimizer="sgd", rounds=rounds, batch_size=4, workers=0)
        return learn(leaky(slope), clients(), settings, **options).rates.values

    go(0.1, 1, run_dir=tmp_path)
    with pytest.raises(FederationError, match="network was"):
        go(0.2, 2, run_dir=tmp_path, resume=True)
    assert not caplog.records
    for path in (tmp_path / "checkpoints").iterdir():
        state, identity = checkpoint.read(path)
        identity.pop("network")
        path.write_bytes(checkpoint.encode(state, identity))
    assert torch.equal(go(0.1, 2, run_dir=tmp_path, resume=True), go(0.1, 2))
    assert "an earlier version that did not record network: make sure" in caplog.text


def bad_clients() -> dict[str, tuple[Any, type[Exception], str]]:
    """Clients that fail, and the error of each."""
    x, y = pair(8, 1)
    return {
        "broken": (Bad(), OSError, "the disk is broken"),
        "empty": ((x[:0], y[:0]), ttpfl.BatchError, "no data"),
        "nan": ((x * float("nan"), y), ttpfl.BatchError, "NaN or Inf in sample"),
        "floats": ((x, y.float()), ttpfl.BatchError, r"labels of torch.float32 with shape \(8,\)"),
        "one-hot": ((x, F.one_hot(y)), ttpfl.BatchError, r"labels of torch.int64 with shape \(8, "),
        "negative": ((x, y - 1), ttpfl.BatchError, r"label -1 of sample \d+ is not a class in 0..2"),
        "text": (("text", y), ttpfl.BatchError, "different lengths|has no tensor"),
    }


def test_a_client_that_fails_is_left_out_of_learn() -> None:
    good = clients((8,) * 7)
    settings = LearnSettings(optimizer="sgd", rounds=2, batch_size=4, workers=2)
    bad = {name: data for name, (data, _, _) in bad_clients().items()}
    result = learn(mlp(), {**good, **bad}, settings)
    assert result.history[0]["failed"] == sorted(bad)
    assert torch.equal(result.rates.values, learn(mlp(), good, settings).rates.values)


@pytest.mark.parametrize("name", bad_clients())
def test_a_client_that_fails_ends_learn_rates(name: str) -> None:
    """With its own error, which says who it was."""
    model, (data, kind, message) = mlp(), bad_clients()[name]
    with untouched(model), pytest.raises(kind, match=message) as caught:
        ttpfl.learn_rates(model, {**clients((8,)), name: data}, optimizer="sgd", rounds=1)
    if kind is ttpfl.BatchError:
        assert f"client '{name}', round 0" in caught.value.__notes__


def test_learn_rates_keeps_the_threads_of_its_caller() -> None:
    """`learn` has one per worker; `learn_rates` is alone on the machine."""
    seen: dict[str, set[int]] = {"learn": set(), "learn_rates": set()}

    def loss(way: str, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen[way].add(torch.get_num_threads())
        return F.cross_entropy(logits, labels)

    with threads(2):
        ttpfl.learn_rates(mlp(), clients(), optimizer="sgd", rounds=2, loss=partial(loss, "learn_rates"))
        learn(
            mlp(), clients(), LearnSettings(optimizer="sgd", rounds=2, workers=0), loss=partial(loss, "learn")
        )
        assert torch.get_num_threads() == 2
    assert seen == {"learn": {1}, "learn_rates": {2}}


@pytest.mark.parametrize("way", ["learn", "learn_rates"])
def test_a_warning_points_to_the_caller(way: str) -> None:
    model, data = make("cnn18"), images("cnn18", 4)
    chosen: dict[str, Any] = {"rounds": 5, "cohort": 2, "lr": 4.0, "batch_size": 5}
    run = {
        "learn": lambda: learn(model, data, LearnSettings(optimizer="sgd", workers=0, **chosen)),
        "learn_rates": lambda: ttpfl.learn_rates(model, data, **chosen),
    }[way]
    with pytest.warns(ttpfl.RatesWarning) as caught:
        run()
    assert [warning.filename for warning in caught] == [__file__]


def test_random_data_of_learn_rates_follows_from_the_seed() -> None:
    """The caller's generators play no part, and are left as they were."""
    model, data = mlp(), [Noisy(pair(9, 1)), Noisy(pair(7, 2))]
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        with untouched(model):
            results.append(ttpfl.learn_rates(model, data, optimizer="sgd", rounds=3, batch_size=4).values)
    assert torch.equal(*results)
    assert not torch.equal(
        results[0], ttpfl.learn_rates(model, data, optimizer="sgd", rounds=3, batch_size=4, seed=1).values
    )


def test_early_stopping_and_evaluation() -> None:
    seen: list[ttpfl.Rates] = []

    def evaluate(rates: ttpfl.Rates) -> dict[str, float]:
        seen.append(rates)
        return {"accuracy": 0.25}

    settings = LearnSettings(rounds=60, batch_size=4, workers=0, lr=50.0, patience=2, eval_every=1)
    result = learn(mlp(), clients(), settings, evaluate=evaluate)
    losses = [record["validation_loss"] for record in result.history]
    best = min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == best + 3 < 60
    assert result.rates.learned["rounds"] == best
    expected = seen[best - 1].values if best else torch.zeros_like(seen[0].values)
    assert torch.equal(result.rates.values, expected)
    assert result.history[0]["target"] == {"accuracy": 0.25}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr must be a positive number, got 0"),
        ({"mode": "both"}, "'both'"),
        ({"average": "mode"}, "'mode'"),
        (
            {"only": "weights"},
            "only must be 'all', 'params', 'stats', 'prior', 'head' or 'forward', got 'weights'",
        ),
        ({"trim": 0.5}, "trim must be a number of at least 0 and below 0.5, got 0.5"),
        ({"direction_cache": -1}, "direction_cache must be a non-negative integer, got -1"),
        ({"local_epochs": 0}, "local_epochs must be a positive integer, got 0"),
        ({"rounds": 2.5}, "rounds must be a positive integer, got 2.5"),
        ({"cohort": "all"}, "cohort must be a positive integer, got 'all'"),
        ({"seed": 0.5}, "seed must be a non-negative integer, got 0.5"),
    ],
    ids=str,
)
def test_senseless_choices(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        LearnSettings(**options)


def test_a_model_without_batchnorm_and_frozen_parts() -> None:
    model: nn.Module = linear()
    model.weight.requires_grad_(False)
    expected = learn_plainly(model, clients(), rounds=2, batch_size=4)
    got = learn(model, clients(), LearnSettings(optimizer="sgd", rounds=2, batch_size=4, workers=2)).rates
    assert torch.equal(got.values, expected.values)
