"""Epsilon over many runs: rates carry what they have cost, whichever way they come in."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.helpers.small_clients import clients, mlp
from ttpfl.core import rates_file
from ttpfl.core.learning import draw_cohort, refine_rates
from ttpfl.core.privacy_record import Account, PrivateRun
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError, RatesFileError
from ttpfl.federation import LearnSettings, epsilon_of_rates, learn
from ttpfl.federation.learn_rates import learn_rates
from ttpfl.federation.privacy.accountant import epsilon_of, epsilon_of_mu
from ttpfl.federation.server.rate_average import average_rates
from ttpfl.util.checksum import sealed

PRIVATE = LearnSettings(
    rounds=2, batch_size=4, workers=0, privacy="central", clip=1e-3, noise=5.0, delta=1e-5
)
PLAIN = LearnSettings(optimizer="sgd", rounds=2, batch_size=4, workers=0)


def chained(*chain: LearnSettings, sites: Any = None, rates: Rates | None = None) -> Rates:
    for settings in chain:
        rates = learn(mlp(), sites or clients(), settings, rates=rates).rates
    assert rates is not None
    return rates


def test_ten_chained_runs_are_one_long_run() -> None:
    one = replace(PRIVATE, rounds=1)
    chain, whole = chained(*[one] * 10), chained(replace(PRIVATE, rounds=10))
    assert epsilon_of_rates(chain, 1e-5) == pytest.approx(epsilon_of(5.0, 10, 1e-5), rel=1e-9)
    assert chain.learned["spent"]["epsilon"] == pytest.approx(whole.learned["spent"]["epsilon"], rel=1e-9)
    assert chain.learned["spent"]["epsilon"] == pytest.approx(2.59, abs=0.01)  # and not the 0.73 of one run


def test_a_chain_agrees_with_another_accountant() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="pip install dp-accounting to compare with it")
    from dp_accounting.pld import PLDAccountant

    local = replace(PRIVATE, privacy="local", noise=9.0, rounds=3)
    chain = chained(PRIVATE, replace(PRIVATE, noise=2.0, clip=0.5, rounds=1), local)
    accountant = PLDAccountant()
    for noise, rounds in ((5.0, 2), (2.0, 1), (9.0 / 2, 3)):  # local noise hides twice the clip
        accountant.compose(accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(noise), rounds))
    assert epsilon_of_rates(chain) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def busiest(chain: list[LearnSettings], sites: int) -> float:
    """The largest sum of 1 / noise squared over the rounds of one site, counted one by one."""
    spent = Counter[int]()
    for settings in chain:
        for number in range(settings.rounds):
            for site in draw_cohort(range(sites), settings.cohort or sites, settings.seed, number):
                spent[site] += 1 / settings.noise**2  # type: ignore[assignment]
    return max(spent.values())


def test_cohorts_are_counted_site_by_site_where_the_sites_are_the_same() -> None:
    chain = [replace(PRIVATE, cohort=2, seed=seed, rounds=5, noise=3.0 + seed) for seed in range(4)]
    rates = chained(*chain)
    exact = epsilon_of_mu(math.sqrt(busiest(chain, len(clients()))), 1e-5)
    assert epsilon_of_rates(rates) == pytest.approx(exact, rel=1e-9)
    assert rates.learned["spent"]["epsilon"] == pytest.approx(exact, rel=1e-9)
    most = [busiest([settings], len(clients())) for settings in chain]
    assert exact < epsilon_of_mu(math.sqrt(sum(most)), 1e-5)  # the busiest of each run are not the same
    unnamed = chained(*chain, sites=list(clients().values()))
    assert epsilon_of_rates(unnamed) == pytest.approx(epsilon_of_mu(math.sqrt(sum(most)), 1e-5), rel=1e-9)


def test_other_sites_count_as_if_they_were_the_same() -> None:
    elsewhere = {f"another {name}": data for name, data in clients().items()}
    rates = chained(PRIVATE, rates=chained(PRIVATE, sites=elsewhere))
    assert epsilon_of_rates(rates) == pytest.approx(epsilon_of(5.0, 4, 1e-5), rel=1e-9)


@pytest.mark.parametrize("way", ["learn", "learn_rates", "refine_rates", "noise 0", "by hand", "in place"])
def test_unprotected_rates_have_no_bound_and_neither_has_what_follows(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zeros = Rates.zeros(mlp())
    some = list(clients().values())
    begin = {
        "learn": lambda: chained(PLAIN),
        "learn_rates": lambda: learn_rates(mlp(), some, rounds=1, batch_size=4),
        "refine_rates": lambda: refine_rates(mlp(), zeros, [some[0]]),
        "noise 0": lambda: chained(replace(PRIVATE, noise=0.0)),
        "by hand": lambda: zeros.with_values(zeros.values + 0.1),
        "in place": lambda: chained(PRIVATE),
    }[way]()
    if way == "in place":
        begin.values[0] += 1e-3
    assert epsilon_of_rates(begin) == math.inf
    begin.save(tmp_path / "begin.safetensors")
    caplog.clear()
    result = learn(
        mlp(), clients(), PRIVATE, rates=Rates.load(tmp_path / "begin.safetensors"), run_dir=tmp_path / "run"
    )
    assert "no privacy bound" in caplog.text
    assert result.history[-1]["epsilon"] is None
    assert result.history[-1]["no_bound"]
    written = Rates.load(tmp_path / "run" / "rates.safetensors")
    assert written.learned["spent"] == {
        "epsilon": None,
        "delta": 1e-5,
        "participations": 2,
        "no_bound": result.history[-1]["no_bound"],
    }
    assert epsilon_of_rates(written) == math.inf


def test_a_warm_start_from_unprotected_rates_hides_nothing() -> None:
    """Rates within a hair of unprotected ones cannot have an epsilon of 0.16."""
    plain = chained(replace(PLAIN, rounds=20))
    warm = chained(replace(PRIVATE, rounds=1, clip=1e-6, noise=20.0), rates=plain)
    assert float((warm.values - plain.values).abs().max()) < 1e-4
    assert epsilon_of_rates(warm) == math.inf


def test_privacy_after_privacy_none_stays_without_a_bound() -> None:
    assert epsilon_of_rates(chained(PRIVATE, PLAIN, PRIVATE)) == math.inf


def test_a_resumed_run_counts_once_and_only_with_its_own_account(tmp_path: Path) -> None:
    begin = chained(PRIVATE)
    longer = replace(PRIVATE, rounds=5)
    learn(mlp(), clients(), PRIVATE, rates=begin, run_dir=tmp_path)
    resumed = learn(mlp(), clients(), longer, rates=begin, run_dir=tmp_path, resume=True).rates
    again = learn(mlp(), clients(), longer, rates=begin, run_dir=tmp_path, resume=True).rates
    for rates in (resumed, again, Rates.load(tmp_path / "rates.safetensors")):
        assert epsilon_of_rates(rates) == pytest.approx(epsilon_of(5.0, 2 + 5, 1e-5), rel=1e-9)
        assert [run.rounds for run in rates.account.runs] == [2, 5]
    laundered = Rates.zeros(mlp()).derived(begin.values)
    with pytest.raises(FederationError, match="account was"):
        learn(mlp(), clients(), longer, rates=laundered, run_dir=tmp_path, resume=True)


def test_rates_for_another_model_keep_their_account(tmp_path: Path) -> None:
    chained(PRIVATE).save(tmp_path / "rates")
    other = mlp()
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    rates = learn(other, clients(), PRIVATE, rates=Rates.load(tmp_path / "rates", model=other)).rates
    assert epsilon_of_rates(rates) == pytest.approx(epsilon_of(5.0, 4, 1e-5), rel=1e-9)


def test_an_average_costs_what_its_parts_cost_and_a_common_start_counts_once() -> None:
    start = chained(PRIVATE)
    one, other = chained(PRIVATE, rates=start), chained(replace(PRIVATE, rounds=3), rates=start)
    mean = average_rates([one, other])
    assert epsilon_of_rates(mean) == pytest.approx(epsilon_of(5.0, 2 + 2 + 3, 1e-5), rel=1e-9)
    assert epsilon_of_rates(average_rates([start, start])) == pytest.approx(
        epsilon_of(5.0, 2, 1e-5), rel=1e-9
    )
    assert epsilon_of_rates(average_rates([one, chained(PLAIN)])) == math.inf


def test_what_is_computed_from_rates_alone_costs_nothing_more(tmp_path: Path) -> None:
    private = chained(PRIVATE)
    rounded = private.derived(private.values.round(decimals=3))
    rounded.save(tmp_path / "rates")
    copied = private.with_values(private.values.clone())
    for rates in (private, rounded, Rates.load(tmp_path / "rates"), copied):
        assert epsilon_of_rates(rates) == pytest.approx(epsilon_of(5.0, 2, 1e-5), rel=1e-9)
    assert epsilon_of_rates(private.with_values(private.values * 2)) == math.inf
    private.learned["spent"] = {"epsilon": 1e-9}  # a description; the account decides
    assert epsilon_of_rates(private) > 0.1


def test_rates_in_double_precision_keep_their_account_in_a_file(tmp_path: Path) -> None:
    private = chained(PRIVATE)
    private.values = private.values.double()
    private.save(tmp_path / "rates")
    assert epsilon_of_rates(Rates.load(tmp_path / "rates")) == epsilon_of_rates(private) < math.inf


def rewritten(path: Path, **changes: Any) -> Path:
    """The rates file with another card, whose checksum is right; it has no account if that is None."""
    with safe_open(path, framework="pt") as file:
        card, values = json.loads(file.metadata()["ttpfl"]), file.get_tensor("rates")
    del card["checksum"]
    card |= changes
    if changes["account"] is None:
        del card["account"]
    card = sealed(card, {rates_file._UNNAMED: values})
    save_file({"rates": values}, path, metadata={"ttpfl": json.dumps(card)})
    return path


def test_files_from_before_there_were_accounts(tmp_path: Path) -> None:
    Rates.zeros(mlp()).save(tmp_path / "rates")
    assert epsilon_of_rates(Rates.load(rewritten(tmp_path / "rates", account=None))) == 0
    chained(PLAIN).save(tmp_path / "rates")
    plain = Rates.load(rewritten(tmp_path / "rates", account=None))
    assert plain.account.no_bound == "learned without privacy"


def test_an_old_record_of_epsilon_is_no_bound(tmp_path: Path) -> None:
    """It is that of the last run alone, which may have begun with rates that nothing protected."""
    private = chained(PRIVATE)
    private.save(tmp_path / "rates")
    old = Rates.load(rewritten(tmp_path / "rates", account=None))
    assert old.account.no_bound == "written before accounts existed: what its run began with is unknown"
    assert epsilon_of_rates(old) == math.inf
    assert old.learned["spent"] == private.learned["spent"]  # a description
    old.save(tmp_path / "next")
    assert Rates.load(tmp_path / "next").account == old.account


RUN = {"privacy": "local", "noise": 1.0, "clip": 1, "rounds": 3, "participations": 2} | {
    "clients": 4,
    "cohort": 2,
    "seed": 0,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise": 0.0},
        {"noise": -1.0},
        {"noise": math.nan},
        {"noise": math.inf},
        {"noise": True},
        {"noise": "1"},
        {"rounds": 1},
        {"rounds": 3.0},
        {"cohort": 5},
        {"cohort": 0},
        {"seed": -1},
        {"privacy": "none"},
        {"unknown": 1},
    ],
)
def test_accounts_that_make_no_sense_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    account = {"runs": [RUN], "no_bound": "", "values": ""}
    Rates.zeros(mlp()).save(tmp_path / "rates")
    Rates.load(rewritten(tmp_path / "rates", account=account))
    account["runs"] = [{**RUN, **wrong}]
    with pytest.raises(RatesFileError, match="valid rates file"):
        Rates.load(rewritten(tmp_path / "rates", account=account))


@pytest.mark.parametrize("account", [[], "none", {}, {"runs": None, "no_bound": "", "values": ""}])
def test_something_else_is_no_account(account: Any, tmp_path: Path) -> None:
    Rates.zeros(mlp()).save(tmp_path / "rates")
    with pytest.raises(RatesFileError, match="valid rates file"):
        Rates.load(rewritten(tmp_path / "rates", account=account))


def test_a_huge_account_is_bounded_without_drawing_its_cohorts() -> None:
    """A file may say anything: 1e12 rounds must not be drawn one by one."""
    runs = [
        PrivateRun("central", 1e5, 0.1, 10**12, 10**6, 10**9, 10, seed, sites="same") for seed in range(3)
    ]
    zeros = Rates.zeros(mlp())
    values = zeros.values + 1
    rates = zeros.with_values(values, account=replace(zeros.derived(values).account, runs=tuple(runs)))
    assert epsilon_of_rates(rates) == pytest.approx(epsilon_of(1e5, 3 * 10**6, 1e-5), rel=1e-9)


def test_hardly_any_noise_is_no_bound() -> None:
    assert epsilon_of_rates(chained(replace(PRIVATE, noise=1e-9))) == math.inf
    rates = chained(replace(PRIVATE, noise=1.1e-6))
    assert rates.learned["spent"]["epsilon"] is None
    assert epsilon_of_rates(rates) == math.inf


def test_rates_handed_out_in_the_midst_of_a_run_have_no_bound() -> None:
    seen: list[float] = []
    learn(
        mlp(),
        clients(),
        replace(PRIVATE, eval_every=1),
        evaluate=lambda rates: seen.append(epsilon_of_rates(rates)) or {},
    )
    assert seen == [math.inf] * 2


def test_an_account_survives_its_file(tmp_path: Path) -> None:
    rates = chained(PRIVATE, replace(PRIVATE, privacy="local", cohort=2))
    rates.save(tmp_path / "rates")
    assert Rates.load(tmp_path / "rates").account == rates.account != Account()
