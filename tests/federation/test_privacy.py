"""Privacy of the rates: the accountant, the noise, and who may see what."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.small_clients import CLASSES, clients, mlp
from ttpfl.core.learning import draw_cohort
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.privacy.accountant import delta_of, epsilon_of, noise_for
from ttpfl.federation.privacy.mechanism import Participation, clipped, gaussian, kept_key, noise_of_sum

QUICK = {"rounds": 2, "batch_size": 4, "workers": 0}


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 8.0])
def test_delta_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """delta = integral of max(0, p - e^epsilon q) for p = N(mu, 1), q = N(0, 1)."""
    x = torch.linspace(-40, 60, 2_000_001, dtype=torch.float64)
    p, q = torch.exp(-((x - mu) ** 2) / 2), torch.exp(epsilon - x**2 / 2)
    integral = float(torch.trapezoid((p - q).clamp(min=0), x)) / math.sqrt(2 * math.pi)
    assert delta_of(epsilon, mu) == pytest.approx(integral, rel=1e-5, abs=1e-12)


@given(
    st.floats(0.3, 50), st.integers(1, 500), st.sampled_from([1e-3, 1e-5, 1e-8]), st.sampled_from([1.0, 2.0])
)
@settings(max_examples=50, deadline=None)
def test_epsilon_is_the_least_that_holds(noise: float, rounds: int, delta: float, sensitivity: float) -> None:
    mu = sensitivity * math.sqrt(rounds) / noise
    epsilon = epsilon_of(noise, rounds, delta, sensitivity)
    assert delta_of(epsilon, mu) <= delta
    if epsilon:
        assert delta_of(epsilon * (1 - 1e-6), mu) > delta


def test_epsilon_agrees_with_another_accountant() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="pip install dp-accounting to compare with it")
    from dp_accounting.pld import PLDAccountant

    for noise, rounds in ((4.0, 16), (10.0, 50), (1.5, 3)):
        accountant = PLDAccountant()
        event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(noise), rounds)
        theirs = accountant.compose(event).get_epsilon(1e-5)
        assert epsilon_of(noise, rounds, 1e-5) == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
def test_noise_for_an_epsilon_gives_it(epsilon: float) -> None:
    noise = noise_for(epsilon, participations=30, delta=1e-5)
    assert epsilon_of(noise, 30, 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(noise, 30, 1e-5) <= epsilon


def test_extremes_of_the_accountant() -> None:
    assert noise_for(math.inf, 10, 1e-5) == 0
    assert epsilon_of(0.0, 3, 1e-5) == math.inf
    assert epsilon_of(1.0, 0, 1e-5) == 0
    assert math.isfinite(epsilon_of(1e-2, 1000, 1e-5))  # where exp(epsilon) would overflow
    with pytest.raises(FederationError, match="epsilon must be a positive number, got 0"):
        noise_for(0, 10, 1e-5)


def test_the_noise_is_normal() -> None:
    numbers = gaussian(b"k", 1, count=40_000)
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert float((numbers**power).mean()) == pytest.approx(moment, abs=0.15)
    share = float((numbers < 1.0).double().mean())
    assert share == pytest.approx(0.8413, abs=0.01)


def test_clipping_keeps_the_direction() -> None:
    change = torch.randn(7)
    short = clipped(change, clip=1e-3)
    assert float(short.norm()) == pytest.approx(1e-3)
    assert torch.allclose(short / short.norm(), change.double() / change.double().norm())
    assert torch.equal(clipped(change, clip=1e3), change.double())
    assert torch.equal(clipped(torch.zeros(3), clip=1.0), torch.zeros(3, dtype=torch.float64))


def test_participation_counts_cohorts() -> None:
    drawn = [client for number in range(20) for client in draw_cohort(range(7), 3, 5, number)]
    assert Participation(7, 3, 5).counts(20).tolist() == [drawn.count(client) for client in range(7)]


def test_central_privacy_is_clipped_mean_plus_noise() -> None:
    model, sites = mlp(), clients()
    alone = {
        name: learn(
            model, {name: data}, LearnSettings(optimizer="sgd", rounds=1, batch_size=4, workers=0)
        ).rates.values
        for name, data in sites.items()
    }
    chosen = LearnSettings(
        rounds=1, batch_size=4, workers=0, privacy="central", clip=0.01, noise=0.5, delta=1e-4
    )
    # One client's seed is its number, but without anything random at clients it has no influence.
    rates = learn(model, sites, chosen, noise_key=b"known").rates
    changes = torch.stack([clipped(values, 0.01) for values in alone.values()], dim=1)
    total = torch.tensor([math.fsum(column) for column in changes.tolist()], dtype=torch.float64)
    expected = (total + noise_of_sum(b"known", 0, total, len(sites), 0.5 * 0.01)) / len(sites)
    assert torch.allclose(rates.values.double(), expected, atol=1e-8)
    assert rates.learned["spent"] == {
        "epsilon": pytest.approx(epsilon_of(0.5, 1, 1e-4)),
        "delta": 1e-4,
        "participations": 1,
    }


def test_local_privacy_keeps_losses_at_the_client_and_goes_with_any_average(tmp_path: Path) -> None:
    chosen = LearnSettings(**QUICK, privacy="local", clip=0.01, noise=1.0, average="median")
    learned = learn(mlp(), clients(), chosen, run_dir=tmp_path)
    again = learn(mlp(), clients(), chosen)
    assert not torch.equal(learned.rates.values, again.rates.values)  # fresh noise
    for line in (tmp_path / "history.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert not any("loss" in name or "accuracy" in name for name in record)
        assert record["epsilon"] == pytest.approx(epsilon_of(1.0, record["round"] + 1, 1e-5, sensitivity=2.0))
    assert Rates.load(tmp_path / "rates.safetensors").learned["spent"]["participations"] == 2


def test_a_resumed_run_finds_its_noise_again(tmp_path: Path) -> None:
    chosen = LearnSettings(rounds=3, batch_size=4, workers=0, privacy="central", noise=0.1)
    whole = learn(mlp(), clients(), chosen, run_dir=tmp_path / "a").rates.values
    key = (tmp_path / "a" / "noise.key").read_bytes()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "noise.key").write_bytes(key)
    first = LearnSettings(rounds=1, batch_size=4, workers=0, privacy="central", noise=0.1)
    learn(mlp(), clients(), first, run_dir=tmp_path / "b")
    resumed = learn(mlp(), clients(), chosen, run_dir=tmp_path / "b", resume=True).rates.values
    assert torch.equal(whole, resumed)
    assert (tmp_path / "a" / "noise.key").stat().st_mode & 0o077 == 0
    assert key not in (tmp_path / "a" / "rates.safetensors").read_bytes()
    assert kept_key(tmp_path / "c") != kept_key(None)


def test_a_round_that_is_repeated_with_other_answers_has_other_noise(tmp_path: Path) -> None:
    """Otherwise the difference of the two sums would be that of the clients' results, without noise."""
    chosen = LearnSettings(rounds=1, batch_size=4, workers=0, privacy="central", clip=0.01, noise=100.0)
    some = clients()
    name, (x, y) = next(iter(some.items()))
    released = [
        learn(mlp(), data, chosen, noise_key=b"the same").rates.values
        for data in (some, some, some | {name: (x, (y + 1) % CLASSES)})
    ]
    assert torch.equal(released[0], released[1])
    difference = float((released[0] - released[2]).abs().max())
    assert difference > 1e-2  # without noise they differ by 0.02 / 4 at most


def test_noise_is_never_the_same_for_another_sum() -> None:
    """Nor in another round, nor, but for its size, at another scale, from which one could compute the sum."""
    total = torch.ones(4, dtype=torch.float64)
    noise = noise_of_sum(b"k", 0, total, 3, scale=1.0)
    for other in (
        noise_of_sum(b"k", 0, total, 4, scale=1.0),
        noise_of_sum(b"k", 1, total, 3, scale=1.0),
        noise_of_sum(b"k", 0, 2 * total, 3, scale=1.0),
        noise_of_sum(b"k", 0, total, 3, scale=2.0) / 2,
    ):
        assert not torch.isclose(noise, other).any()
    many = torch.ones(10_000, dtype=torch.float64)
    assert noise_of_sum(b"k", 0, many, 3, scale=3.0).std().item() == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1.0, 1e5, math.nan])
def test_a_delta_that_promises_nothing(delta: float) -> None:
    for count in (lambda: epsilon_of(1.0, 1, delta), lambda: noise_for(1.0, 1, delta)):
        with pytest.raises(FederationError, match="delta must be a number above 0 and below 1, got"):
            count()


def test_a_key_is_there_in_full_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> bytes:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("ttpfl.federation.privacy.mechanism.secrets.token_bytes", full)
        with pytest.raises(OSError, match="no space"):
            kept_key(tmp_path)
    assert list(tmp_path.iterdir()) == []
    key = kept_key(tmp_path)
    assert kept_key(tmp_path) == key
    assert (tmp_path / "noise.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"privacy": "central", "average": "median"}, "one client can move the median further"),
        ({"privacy": "central", "average": "krum"}, "privacy='local', which works with any average"),
        ({"privacy": "local", "patience": 3}, "losses, which have no noise"),
        ({"privacy": "both"}, "'none', 'central' or 'local'"),
        ({"privacy": "central", "clip": 0.0}, "clip must be a positive number, got 0.0"),
        ({"privacy": "central", "delta": 1.0}, "delta must be a number above 0 and below 1, got 1.0"),
        ({"privacy": "local", "noise": -1.0}, "noise must be a non-negative number, got -1.0"),
    ],
)
def test_combinations_that_keep_no_promise_are_refused(choice: dict[str, object], words: str) -> None:
    with pytest.raises(FederationError, match=words):
        LearnSettings(**choice)  # type: ignore[arg-type]
