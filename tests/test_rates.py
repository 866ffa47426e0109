"""The vector of rates: groups, averages, files, checks."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import ttpfl
from tests.helpers.networks import make, some_rates
from ttpfl import Rates

numbers = st.floats(-1e6, 1e6, width=32, allow_nan=False)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def rates_with(values: list[float]) -> Rates:
    rates = Rates.zeros(mlp())
    rates.values = torch.tensor(values, dtype=torch.float32)
    return rates


vectors = st.lists(numbers, min_size=6, max_size=6)


def test_granularity() -> None:
    model = ttpfl.models.shallow_cnn(10)
    tensors = Rates.zeros(model)
    assert tensors.values.dtype == torch.float32
    assert tensors.members["conv1.weight"] == ("conv1.weight",)
    layers = Rates.zeros(model, granularity="layer")
    assert layers.names[:3] == ("conv1", "bn1", "conv2")
    assert layers.members["bn1"] == ("bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var")
    blocks = Rates.zeros(model, granularity="block")
    assert blocks.names == ("conv1", "conv2", "conv3", "linear4", "linear5")
    kinds = Rates.zeros(model, granularity="kind")
    assert len(kinds.names) == 7
    assert len(kinds.members["batchnorm.running_var"]) == 4
    for rates in (tensors, layers, blocks, kinds):
        members = [key for keys in rates.members.values() for key in keys]
        assert sorted(members) == sorted(tensors.names)
        sizes = [sum(model.state_dict()[key].numel() for key in keys) for keys in rates.members.values()]
        assert rates.sizes.tolist() == sizes


def test_only() -> None:
    model = ttpfl.models.shallow_cnn(10)
    params, stats = Rates.zeros(model, only="params"), Rates.zeros(model, only="stats")
    assert set(params.names) == {name for name, _ in model.named_parameters()}
    assert set(stats.names) == {f"bn{i}.running_{s}" for i in range(1, 5) for s in ("mean", "var")}


@pytest.mark.parametrize("arguments", [{"granularity": "tensors"}, {"only": "weights"}])
def test_unknown_choices_list_the_known_ones(arguments: dict[str, str]) -> None:
    with pytest.raises(ttpfl.RatesError, match=r"must be .*, got '(tensors|weights)'"):
        Rates.zeros(mlp(), **arguments)


@settings(max_examples=50, deadline=None)
@given(st.lists(vectors, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_average_is_the_same_in_any_order(columns: list[list[float]], random) -> None:
    rates = [rates_with(values) for values in columns]
    expected = torch.tensor(columns, dtype=torch.float64).mean(0)
    mean = ttpfl.average_rates(rates)
    torch.testing.assert_close(mean.values.double(), expected, rtol=1e-6, atol=1e-6)
    weights = [random.uniform(0.1, 5) for _ in rates]
    weighted = ttpfl.average_rates(rates, weights)
    order = list(range(len(rates)))
    random.shuffle(order)
    again = ttpfl.average_rates([rates[i] for i in order])
    weighted_again = ttpfl.average_rates([rates[i] for i in order], [weights[i] for i in order])
    assert torch.equal(mean.values, again.values)
    assert torch.equal(weighted.values, weighted_again.values)


def test_average_rounds_only_once() -> None:
    """Sums in order of arrival would give 0 or 1e-30, as the large numbers come first or last."""
    columns = [1e6, 1e-30, -1e6]
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]):
        mean = ttpfl.average_rates([rates_with([columns[i]] * 6) for i in order])
        assert mean.values.tolist() == pytest.approx([1e-30 / 3] * 6, rel=1e-5)


def test_modes_are_not_mixed() -> None:
    one, other = rates_with([0.0] * 6), rates_with([0.0] * 6)
    other.mode = "online"
    with pytest.raises(ttpfl.RatesError, match="different mode"):
        ttpfl.average_rates([one, other])


@settings(max_examples=50, deadline=None)
@given(vectors, st.integers(1, 300), st.floats(1e-3, 1e3))
def test_average_of_identical_rates_is_identical(values: list[float], count: int, weight: float) -> None:
    rates = rates_with(values)
    assert torch.equal(ttpfl.average_rates([rates] * count).values, rates.values)
    assert torch.equal(ttpfl.average_rates([rates] * count, [weight] * count).values, rates.values)


def test_weighted_average() -> None:
    rates = ttpfl.average_rates([rates_with([0.0] * 6), rates_with([1.0] * 6)], weights=[3, 1])
    assert rates.values.tolist() == [0.25] * 6


def test_averages_that_make_no_sense() -> None:
    rates = rates_with([0.0] * 6)
    other = Rates.zeros(nn.Linear(3, 2))
    for arguments, message in [
        (([],), "at least one"),
        (([rates, other],), "rates 1 and rates 0 have different modules"),
        (([rates, rates], [1]), "1 weights for 2 rates"),
        (([rates, rates], [0, 0]), "not all zero"),
        (([rates, rates], [1, float("nan")]), "finite"),
        (([rates, rates], [2, -1]), "negative"),
        (([rates, rates_with([0, 0, float("nan"), 0, 0, 0])],), r"'1.weight' is nan"),
    ]:
        with pytest.raises(ttpfl.RatesError, match=message):
            ttpfl.average_rates(*arguments)


@settings(max_examples=30, deadline=None)
@given(values=vectors)
def test_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("rates") / "r.safetensors"
    rates = rates_with(values)
    rates.learned = {"rounds": 3, "lr": 0.1}
    rates.save(path)
    again = Rates.load(path)
    assert torch.equal(again.values.view(torch.int32), rates.values.view(torch.int32))
    for field in ("modules", "granularity", "only", "mode", "fingerprint", "weights_hash", "learned"):
        assert getattr(again, field) == getattr(rates, field)


def test_file_of_resnet18_is_small_and_open(tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    model = ttpfl.models.resnet18(10)
    Rates.zeros(model, granularity="tensor").save(path)
    assert path.stat().st_size < 15_000
    assert load_file(path)["rates"].shape == (102,)
    Rates.zeros(model).save(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.safetensors", "r.safetensors"]


@pytest.mark.parametrize("granularity", ["layer", "kind"])
def test_groups_survive_the_file(tmp_path: Path, granularity: str) -> None:
    model = ttpfl.models.shallow_cnn(10)
    rates = some_rates(model, granularity=granularity, only="params")
    rates.save(tmp_path / "r")
    again = Rates.load(tmp_path / "r", model=model)
    assert again.members == rates.members
    x = torch.randn(4, 3, 32, 32)
    assert torch.equal(ttpfl.Personalizer(model, again)(x), ttpfl.Personalizer(model, rates)(x))


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    path, bad = tmp_path / "r.safetensors", tmp_path / "bad.safetensors"
    some_rates(mlp()).save(path)
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        bad.write_bytes(data[:length])
        with pytest.raises(ttpfl.RatesFileError, match=r"bad\.safetensors"):
            Rates.load(bad)
    for position in range(len(data)):
        for bit in (0, 3, 7):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            bad.write_bytes(flipped)
            try:
                again = Rates.load(bad)
            except ttpfl.RatesFileError:
                continue
            # Padding is all that may change unnoticed.
            assert torch.equal(again.values, some_rates(mlp()).values)
            assert again.modules == some_rates(mlp()).modules


class Bomb:
    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(Path(os.environ["TTPFL_TEST_BOMB"])),))


def test_foreign_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_TEST_BOMB", str(tmp_path / "exploded"))
    path = tmp_path / "bad"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ttpfl.RatesFileError):
        Rates.load(path)
    torch.save({"rates": torch.zeros(3)}, path)
    with pytest.raises(ttpfl.RatesFileError):
        Rates.load(path)
    assert not (tmp_path / "exploded").exists()
    deep = "[" * 100_000
    for metadata in (None, {"ttpfl": "not json"}, {"ttpfl": "[]"}, {"ttpfl": "{}"}, {"ttpfl": deep}):
        save_file({"rates": torch.zeros(3)}, path, metadata=metadata)
        with pytest.raises(ttpfl.RatesFileError):
            Rates.load(path)
    for card, message in [
        ({"format": "other", "version": 1}, "is not a rates file but 'other'"),
        ({"format": "ttpfl.rates", "version": 3}, "version 3.*upgrade"),
    ]:
        save_file({"rates": torch.zeros(3)}, path, metadata={"ttpfl": json.dumps(card)})
        with pytest.raises(ttpfl.RatesFileError, match=message):
            Rates.load(path)
    with pytest.raises(FileNotFoundError):
        Rates.load(tmp_path / "missing")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    rates = rates_with([1.0] * 6)
    rates.save(path)
    rates.learned = {"not": object()}
    with pytest.raises(TypeError):
        rates.save(path)
    rates.values[2] = float("nan")
    with pytest.raises(ttpfl.RatesError, match=r"'1.weight' is nan"):
        rates.save(path)
    assert Rates.load(path).values.tolist() == [1.0] * 6
    assert os.listdir(tmp_path) == ["r.safetensors"]


def test_rates_of_another_architecture(tmp_path: Path) -> None:
    rates = Rates.zeros(ttpfl.models.shallow_cnn(10))
    path = tmp_path / "r"
    rates.save(path)
    message = r"module 'linear5.weight' has shape \(10, 64\) in the rates, and the model has shape \(7, 64\)"
    for use in (
        lambda model: Rates.load(path, model=model),
        lambda model: ttpfl.Personalizer(model, rates),
        lambda model: ttpfl.refine_rates(model, rates, []),
        lambda model: ttpfl.learn_rates(model, [(torch.zeros(1), torch.zeros(1))], rates=rates),
    ):
        with pytest.raises(ttpfl.RatesError, match=message):
            use(ttpfl.models.shallow_cnn(7))
    with pytest.raises(ttpfl.RatesError, match=r"'conv1.weight' .* the model has shape \(64, 3, 7, 7\)"):
        rates.check_fits(ttpfl.models.resnet18(10))
    other = ttpfl.models.shallow_cnn(10)
    other.extra = nn.Linear(2, 2)
    with pytest.raises(ttpfl.RatesError, match=r"the model has 'extra.weight' of shape \(2, 2\)"):
        rates.check_fits(other)


def test_a_model_frozen_for_inference_still_fits() -> None:
    model = make("cnn")
    rates = some_rates(model)
    x = torch.randn(4, 3, 32, 32)
    expected = ttpfl.Personalizer(model, rates)(x)
    assert torch.equal(ttpfl.Personalizer(model.requires_grad_(False), rates)(x), expected)


def test_other_weights_only_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = mlp()
    Rates.zeros(model).save(tmp_path / "r")
    Rates.load(tmp_path / "r", model=model)
    assert not caplog.records
    Rates.load(tmp_path / "r", model=mlp())
    assert "other weights" in caplog.text


def test_values_that_cannot_be_used() -> None:
    model = mlp()
    rates = Rates.zeros(model)
    rates.values = torch.zeros(5)
    with pytest.raises(ttpfl.RatesError, match=r"shape \(5,\), but there are 6 rates"):
        ttpfl.Personalizer(model, rates)
    rates.values = torch.tensor([0, 0, 0, 0, float("inf"), 0])
    for use in (ttpfl.Personalizer, lambda m, r: ttpfl.refine_rates(m, r, [])):
        with pytest.raises(ttpfl.RatesError, match=r"'1.running_mean' is inf"):
            use(model, rates)


def test_text() -> None:
    rates = some_rates(ttpfl.models.shallow_cnn(10))
    lines = str(rates).splitlines()
    assert lines[1].split()[:2] == ["block", "conv.weight"]
    assert [line.split()[0] for line in lines[2:]] == ["conv1", "conv2", "conv3", "linear4", "linear5"]
    listing = rates.table()
    assert all(name in listing for name in rates.names)
    assert f"{rates.values[0]:+.4g}" in listing
    for granularity in ("layer", "block", "kind"):
        assert len(some_rates(make("cnn"), granularity=granularity).table().splitlines()) > 5
