"""The search for rates, with made-up clients whose losses are quadratic; and which settings choose it."""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import scipy.stats
import torch
from torch import Tensor

from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError
from ttpfl.federation.server.agreement import losses_left_out
from ttpfl.federation.server.answers import UNKNOWN, Answers
from ttpfl.federation.server.evidence import accuracy_gain, loss_gain, shown_to_help
from ttpfl.federation.server.rate_search import (
    CONVERGED,
    LARGEST_PRIOR_RATE,
    LARGEST_RATE,
    NO_AGREEMENT,
    ONE_CLIENT,
    REASONS,
    RUNNING,
    TOO_SHORT,
    RateSearch,
    advanced,
    expected_gain,
    limits,
    restored,
    started,
)
from ttpfl.federation.server.robust import Average
from ttpfl.federation.settings import LearnSettings

MEAN = Average()
CENTER = 0.4
"""Where the minima of the clients are on average, in units of each coordinate's scale."""


@dataclass(frozen=True)
class Population:
    """Client i has the loss low_i + (x - minimum_i)' H_i (x - minimum_i) / 2, with a diagonal H_i."""

    minima: Tensor
    curvatures: Tensor
    low: Tensor

    def losses(self, x: Tensor) -> Tensor:
        return self.low + (self.curvatures * (x - self.minima).square()).sum(1) / 2

    def mean(self, x: Tensor) -> float:
        return float(self.losses(x).mean())

    def answers(self, x: Tensor, clients: Tensor | None = None) -> Answers:
        some = torch.arange(len(self.low)) if clients is None else clients
        slopes, counts = self.curvatures * (x - self.minima), torch.ones(len(some), dtype=torch.int64)
        return Answers(some, self.losses(x)[some], slopes[some], 10 * counts, UNKNOWN * counts)

    def lowest(self) -> Tensor:
        """The minimum of the mean loss."""
        return (self.curvatures * self.minima).sum(0) / self.curvatures.sum(0)


def made(
    clients: int = 60, rates: int = 7, seed: int = 0, spread: float = 0.3, orders: int = 3
) -> Population:
    """Coordinates of scales from 10^-orders to 10^orders."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-orders, orders, rates, dtype=torch.float64)
    places = torch.randn(clients, rates, generator=generator, dtype=torch.float64)
    curved = 1 + 0.4 * torch.rand(clients, rates, generator=generator, dtype=torch.float64)
    low = 1 + 0.1 * torch.rand(clients, generator=generator, dtype=torch.float64)
    return Population(scale * (CENTER + spread * places), curved / scale.square(), low)


def zeros(population: Population) -> Tensor:
    return torch.zeros(population.minima.shape[1], dtype=torch.float64)


Answer = Callable[[int, Tensor], Answers]


def bound(population: Population, largest: float = LARGEST_RATE) -> Tensor:
    return torch.full_like(zeros(population), largest)


def searched(
    population: Population,
    average: Average = MEAN,
    limit: int = 25,
    given: Tensor | None = None,
    answer: Answer | None = None,
    largest: float = LARGEST_RATE,
) -> list[RateSearch]:
    """The search after every round."""
    ask = answer or (lambda number, x: population.answers(x))
    begin = zeros(population).float() if given is None else given
    search = started(ask(0, zeros(population)), average, begin, bound(population, largest))
    history = [search]
    while not search.reason and search.rounds < limit:
        search = advanced(search, ask(search.rounds, search.trial), average)
        history.append(search)
    return history


def same(one: RateSearch, other: RateSearch) -> bool:
    """To the bit."""
    left, right = one.tensors(), other.tensors()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(("rates", "seed"), [(3, 0), (7, 1), (13, 2)])
def test_similar_clients_with_badly_scaled_rates(rates: int, seed: int) -> None:
    """In at most 25 rounds, at least 98 % of the way down."""
    population = made(60, rates, seed)
    history = searched(population)
    last = history[-1]
    assert last.reason
    assert last.rounds < 25
    begin, end, best = (
        population.mean(x) for x in (zeros(population), last.region.center, population.lowest())
    )
    assert end - best < 0.02 * (begin - best)
    assert torch.equal(last.best.losses, population.losses(last.region.center))
    assert torch.equal(last.plain.losses, population.losses(zeros(population)))
    means = [population.mean(search.region.center) for search in history]
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize("average", [Average("median"), Average("trimmed", 0.2), Average("krum", 0.2)])
def test_other_averages_lower_the_loss(average: Average) -> None:
    population = made(30, 5)
    last = searched(population, average)[-1]
    begin, best = population.mean(zeros(population)), population.mean(population.lowest())
    assert population.mean(last.region.center) - best < 0.3 * (begin - best)


@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_zeros(seed: int) -> None:
    """Also with few clients that have little in common, and at every moment."""
    population = made(2 + seed, 4, seed, spread=2.0)
    for search in searched(population, limit=8):
        assert population.mean(search.region.center) <= population.mean(zeros(population))


def test_the_rates_to_send_are_in_single_precision() -> None:
    """So the server knows exactly the point that clients answer for."""
    for search in searched(made(20, 5)):
        assert torch.equal(search.trial.float().double(), search.trial)
        assert torch.equal(search.region.center.float().double(), search.region.center)


def test_converged() -> None:
    """Identical clients: nothing is left to gain at the minimum."""
    one = made(1, 4)
    population = Population(one.minima.expand(20, -1), one.curvatures.expand(20, -1), one.low.expand(20))
    last = searched(population)[-1]
    assert last.reason == CONVERGED
    assert REASONS[CONVERGED] == "converged: the next step would lower the loss by less than 0.01%"
    assert population.mean(last.region.center) < population.mean(population.lowest()) * 1.001


def contradicting() -> Population:
    """To every client there is one that wants the opposite."""
    half = made(8, 3, spread=1.0)
    both = torch.cat([half.minima, -half.minima])
    return Population(both, half.curvatures.repeat(2, 1), half.low.repeat(2))


def test_no_agreement() -> None:
    history = searched(contradicting())
    assert len(history) == 1
    assert history[0].reason == NO_AGREEMENT
    assert not history[0].region.center.any()


def test_too_short() -> None:
    """Slopes that lie: no step lowers the loss, which is small."""
    population = made(20, 3)
    factor = 1e-4
    population = Population(population.minima, factor * population.curvatures, factor * population.low)

    def answer(number: int, x: Tensor) -> Answers:
        honest = population.answers(zeros(population))
        return honest._replace(losses=honest.losses + float(x.norm() > 0))

    last = searched(population, limit=60, answer=answer)[-1]
    assert last.reason == TOO_SHORT
    assert not last.region.center.any()


def test_one_client() -> None:
    (search,) = searched(made(1, 3))
    assert search.reason == ONE_CLIENT
    assert not search.region.center.any()
    assert expected_gain(search) == {}


def test_the_end_by_the_number_of_rounds_has_no_reason() -> None:
    search = searched(made(60, 7), limit=2)[-1]
    assert search.reason == RUNNING
    assert REASONS[RUNNING] == ""


@pytest.mark.parametrize("seed", range(3))
def test_clients_that_fail_at_random(seed: int) -> None:
    """A third of the answers is missing in every round, also in the first."""
    population, generator = made(60, 5, seed), torch.Generator().manual_seed(seed)

    def answer(number: int, x: Tensor) -> Answers:
        some = (torch.rand(60, generator=generator) < 0.67).nonzero().flatten()
        return population.answers(x, some)

    last = searched(population, answer=answer)[-1]
    begin, best = population.mean(zeros(population)), population.mean(population.lowest())
    assert population.mean(last.region.center) - best < 0.1 * (begin - best)
    gain = expected_gain(last)
    assert gain["clients"] == len(set(last.best.clients.tolist()) & set(last.plain.clients.tolist()))


def test_losses_are_compared_for_the_same_clients() -> None:
    """The clients with the largest losses are missing in the second round: that is no improvement."""
    population = made(10, 2)
    population = replace(population, low=population.low + 100 * (torch.arange(10) >= 5))

    def worse(number: int, x: Tensor) -> Answers:
        if number == 0:
            return population.answers(x)
        found = population.answers(x, torch.arange(5))
        return found._replace(losses=population.losses(zeros(population))[:5] + 1)

    last = searched(population, limit=2, answer=worse)[-1]
    assert last.best_round == 0
    assert not last.region.center.any()


def test_rates_stay_within_their_limits() -> None:
    """The others find their minimum all the same, and no round is wasted on what cannot move."""
    population, largest = made(60, 4, orders=0), 0.2
    history = searched(population, largest=largest)
    for search in history:
        assert float(search.trial.abs().max()) <= largest + 1e-6
    last, free = history[-1], searched(population)[-1]
    torch.testing.assert_close(last.region.center, bound(population, largest), rtol=0.01, atol=0)
    assert last.reason in (CONVERGED, NO_AGREEMENT)
    assert last.rounds <= free.rounds + 1


def test_only_the_label_prior_has_a_low_limit() -> None:
    rates = Rates.zeros(torch.nn.Linear(3, 2), prior=[1.0, 1.0])
    assert limits(rates).tolist() == [LARGEST_RATE, LARGEST_RATE, LARGEST_PRIOR_RATE]


def test_a_round_of_strangers_changes_nothing() -> None:
    """If no client answered both times, there is nothing to compare: the same rates are sent again."""
    population = made(20, 3)
    first = started(
        population.answers(zeros(population), torch.arange(10)),
        MEAN,
        zeros(population).float(),
        bound(population),
    )
    second = advanced(first, population.answers(first.trial, torch.arange(10, 20)), MEAN)
    assert second.rounds == first.rounds + 1
    assert same(replace(second, rounds=first.rounds), first)


@pytest.mark.parametrize("average", [MEAN, Average("median")])
def test_tensors_hold_everything(average: Average) -> None:
    """A search that is restored in every round goes on as if nothing had happened."""
    population = made(30, 7)
    expected = searched(population, average)
    search = restored(expected[0].tensors())
    for other in expected[1:]:
        assert not search.reason
        kept = {name: tensor.clone() for name, tensor in search.tensors().items()}
        search = advanced(restored(kept), population.answers(search.trial), average)
        assert same(search, other)
        assert search.region.measured == other.region.measured
        assert (search.rounds, search.best_round, search.reason) == (
            other.rounds,
            other.best_round,
            other.reason,
        )
    assert len(expected) > 2


def test_given_rates_that_help() -> None:
    """They are tried first, and the search goes on from there."""
    population = made(30, 4)
    given = (0.9 * population.lowest()).float()
    history = searched(population, given=given)
    assert torch.equal(history[0].trial, given.double())
    assert torch.equal(history[1].region.center, given.double())
    assert history[1].best_round == 1
    assert population.mean(history[-1].region.center) <= population.mean(given.double())


@pytest.mark.parametrize("factor", [-1.0, 2.5])
def test_given_rates_that_harm(factor: float) -> None:
    population = made(30, 4)
    history = searched(population, given=(factor * population.lowest()).float())
    assert not history[1].region.center.any()
    begin, best = population.mean(zeros(population)), population.mean(population.lowest())
    assert population.mean(history[-1].region.center) - best < 0.2 * (begin - best)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_rates_that_have_no_effect_stay(scale: float) -> None:
    """No client has a slope there, or one that is rounding."""
    population = made(20, 3)
    tiny = 1e-14 if scale > 1 else 0.0

    def answer(number: int, x: Tensor) -> Answers:
        found = population.answers(x)
        slopes = found.slopes.clone()
        slopes[:, 1] = tiny
        return found._replace(slopes=slopes)

    for search in searched(population, answer=answer):
        assert search.region.center[1] == 0
        assert search.trial[1] == 0
    assert search.region.center[0] != 0


def test_rates_stay_within_what_sites_accept() -> None:
    """The minimum is beyond; the search ends at the limit, and all its figures are numbers."""
    population = made(20, 2, spread=0.01, orders=0)
    far = Population(population.minima + 3000, population.curvatures * 1e-6, population.low)
    history = searched(far)
    for search in history:
        assert search.trial.abs().max() <= LARGEST_RATE
    last = history[-1]
    assert last.reason
    assert torch.equal(last.region.center, torch.full((2,), LARGEST_RATE, dtype=torch.float64))
    assert last.region.curvature.isfinite().all()
    assert expected_gain(last)["gain"] > 0


def real_gain(x: Tensor) -> float:
    """Mean decrease of the loss over all clients that `made` could make, with orders=0."""
    return float((1.2 * (CENTER**2 - (x - CENTER).square())).sum() / 2)


@pytest.mark.parametrize("seeds", [16, pytest.param(200, marks=pytest.mark.slow)])
def test_the_expected_gain_at_new_clients(seeds: int) -> None:
    """Off by less than 10 % on average, and the interval of 90 % holds the truth in at least 80 % of runs."""
    covered, expected, real = 0, 0.0, 0.0
    for seed in range(seeds):
        search = searched(made(30, 2, seed, spread=0.4, orders=0), limit=3)[-1]
        figures, truth = expected_gain(search), real_gain(search.region.center)
        low, high = figures["interval"]
        covered += low <= truth <= high
        expected += figures["gain"] / seeds
        real += truth / seeds
        assert figures["clients"] == 30
        assert low <= figures["gain"] <= high
    assert expected == pytest.approx(real, rel=0.1)
    assert covered >= 0.8 * seeds


def test_clients_of_the_search_gain_more_than_others() -> None:
    """With few clients, the gain at the very clients that chose the rates is no estimate."""
    at_these, expected, real = 0.0, 0.0, 0.0
    for seed in range(8):
        population = made(6, 3, seed, spread=0.5, orders=0)
        search = searched(population, limit=5)[-1]
        at_these += population.mean(zeros(population)) - population.mean(search.region.center)
        expected += expected_gain(search)["gain"]
        real += real_gain(search.region.center)
    assert real < at_these
    assert expected < at_these


@pytest.mark.parametrize("seed", [0, 4, 12])
def test_rates_of_zero_are_expected_to_change_nothing(seed: int) -> None:
    """Clients that have nothing in common: whoever the next client is, rates of zero do not affect it."""
    (search,) = searched(made(4, 4, seed, spread=3.0, orders=0))
    assert search.reason == NO_AGREEMENT
    assert not search.region.center.any()
    assert expected_gain(search)["gain"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("factor", [1e-2, 1e4])
def test_the_unit_of_the_loss_does_not_matter(factor: float) -> None:
    population = made(12, 2, orders=1)
    other = Population(population.minima, factor * population.curvatures, factor * population.low)
    one, two = searched(population)[-1], searched(other)[-1]
    assert (one.rounds, one.reason) == (two.rounds, two.reason)
    torch.testing.assert_close(one.region.center, two.region.center, rtol=1e-5, atol=0)


def test_every_client_counts_the_same_in_figures() -> None:
    answers = Answers(
        torch.tensor([0, 3]),
        torch.tensor([1.0, 2.0]).double(),
        torch.zeros(2, 1),
        torch.tensor([10, 30]),
        torch.tensor([5, 24]),
    )
    assert answers.figures("x", MEAN) == {"x_loss": 1.5, "x_accuracy": 0.65}
    unknown = answers._replace(right=torch.tensor([5, UNKNOWN]))
    assert unknown.figures("x", MEAN) == {"x_loss": 1.5}
    assert answers.of(torch.tensor([3, 4])).samples.tolist() == [30]


@pytest.mark.parametrize(
    ("given", "optimizer"),
    [
        ({}, "trust-region"),
        ({"rounds": 3, "cohort": 5, "batch_size": 4, "mode": "online", "only": "stats"}, "trust-region"),
        ({"average": "median", "trim": 0.2, "min_reply_fraction": 0.1}, "trust-region"),
        ({"local_epochs": 1, "lr": None, "patience": None, "privacy": "none"}, "trust-region"),
        ({"lr": 0.1}, "sgd"),
        ({"local_epochs": 2}, "sgd"),
        ({"patience": 3}, "sgd"),
        ({"privacy": "central"}, "sgd"),
        ({"privacy": "local"}, "sgd"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"optimizer": "sgd", "lr": 2.0}, "sgd"),
        ({"optimizer": "trust-region"}, "trust-region"),
    ],
)
def test_which_optimizer(given: dict[str, Any], optimizer: str) -> None:
    settings = LearnSettings(**given)
    assert settings.optimizer == optimizer
    assert settings.searches == (optimizer == "trust-region")
    defaults = {"rounds": 25, "lr": None} if settings.searches else {"rounds": 200, "lr": 0.1}
    for name, value in {**defaults, "mode": "batch"}.items():
        expected = value if given.get(name) is None else given[name]
        assert getattr(settings, name) == expected
    assert settings.defaults() == LearnSettings(optimizer=optimizer)
    assert replace(settings) == settings
    assert LearnSettings(**vars(settings)) == settings


@pytest.mark.parametrize(
    ("given", "change", "expected"),
    [
        ({}, {"optimizer": "sgd"}, ("sgd", 200, 0.1)),
        ({}, {"lr": 0.5}, ("sgd", 200, 0.5)),
        ({}, {"privacy": "central"}, ("sgd", 200, 0.1)),
        ({"rounds": 25}, {"optimizer": "sgd"}, ("sgd", 25, 0.1)),
        ({"optimizer": "sgd"}, {"optimizer": "trust-region"}, ("trust-region", 25, None)),
        ({"optimizer": "sgd", "rounds": 7}, {"optimizer": "trust-region"}, ("trust-region", 7, None)),
        ({"lr": 0.3}, {"rounds": 5}, ("sgd", 5, 0.3)),
        ({"privacy": "local"}, {"privacy": "none"}, ("trust-region", 25, None)),
    ],
)
def test_replaced_settings_have_the_defaults_of_their_optimizer(
    given: dict[str, Any], change: dict[str, Any], expected: tuple[str, int, float | None]
) -> None:
    changed = replace(pickle.loads(pickle.dumps(LearnSettings(**given))), **change)
    assert (changed.optimizer, changed.rounds, changed.lr) == expected
    assert changed == LearnSettings(**{**given, **change})
    with pytest.raises(FederationError, match=r"^lr=0\.3 has no effect"):
        replace(LearnSettings(lr=0.3), optimizer="trust-region")


@pytest.mark.parametrize(
    ("given", "change", "learned"),
    [
        ({"only": "prior"}, {}, True),
        ({"only": "prior"}, {"only": "all"}, False),
        ({"only": "prior"}, {"only": "params"}, False),
        ({"only": "prior"}, {"optimizer": "sgd"}, False),
        ({"only": "prior", "prior": True}, {"only": "all"}, True),
        ({"optimizer": "sgd"}, {"optimizer": "trust-region", "only": "prior"}, True),
    ],
)
def test_replaced_settings_learn_the_label_prior_if_they_still_ask_for_it(
    given: dict[str, Any], change: dict[str, Any], learned: bool
) -> None:
    changed = replace(LearnSettings(**given), **change)
    assert changed.learns_prior == learned
    assert changed == LearnSettings(**{**given, **change})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"lr": 0.5},
            "lr=0.5 has no effect with optimizer='trust-region': leave it out, or use optimizer='sgd'",
        ),
        (
            {"local_epochs": 2},
            "local_epochs=2 has no effect with optimizer='trust-region': leave it out, or use "
            "optimizer='sgd'",
        ),
        (
            {"patience": 4},
            "patience=4 has no effect with optimizer='trust-region': leave it out, or use optimizer='sgd'",
        ),
        (
            {"privacy": "central"},
            "privacy='central' needs optimizer='sgd': the trust-region method compares the clients' losses "
            "and slopes from round to round, which would all need noise",
        ),
        (
            {"privacy": "local", "lr": 1.0},
            "privacy='local' needs optimizer='sgd': the trust-region method compares the clients' losses "
            "and slopes from round to round, which would all need noise",
        ),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], text: str) -> None:
    with pytest.raises(FederationError) as raised:
        LearnSettings(optimizer="trust-region", **given)
    assert str(raised.value) == text


def test_an_unknown_optimizer() -> None:
    with pytest.raises(FederationError, match=r"optimizer must be .*trust-region.*sgd.*got 'adam'"):
        LearnSettings(optimizer="adam")


def with_right(answers: Answers, right: int) -> Answers:
    return answers._replace(right=torch.full_like(answers.right, right))


@pytest.mark.parametrize("last_good", [0, 1, 3])
def test_rates_that_do_not_raise_the_accuracy_are_not_returned(last_good: int) -> None:
    """Nor any later ones, although their loss is lower. All clients change alike, so there is no doubt."""
    population = made()

    def answer(number: int, x: Tensor) -> Answers:
        return with_right(population.answers(x), 6 if 0 < number <= last_good else 5)

    history = searched(population, answer=answer)
    last, good = history[-1], history[last_good]
    assert last.best_round > last_good
    assert torch.equal(last.result.rates, good.region.center)
    assert torch.equal(last.result.answers.losses, population.losses(good.region.center))
    assert last.result.round == good.best_round
    assert last.best.losses.mean() < last.result.answers.losses.mean()
    if not last_good:
        assert expected_gain(last)["gain"] == 0


@pytest.mark.parametrize("right", [6, UNKNOWN])
def test_rates_that_raise_the_accuracy_are_returned(right: int) -> None:
    """Also if nobody knows the accuracy."""
    population = made()
    last = searched(
        population,
        answer=lambda number, x: with_right(population.answers(x), right if number else min(5, right)),
    )[-1]
    assert torch.equal(last.result.rates, last.region.center)


def test_a_gain_of_accuracy_must_be_beyond_chance() -> None:
    """The share of clients that gain, the others losing as much, is 34 or 40 of 60: p = 0.15 and 0.005."""
    population = made()

    def answer(winners: int) -> Answer:
        def answered(number: int, x: Tensor) -> Answers:
            answers = with_right(population.answers(x), 5)
            answers.right[:winners] += 1 if number else 0
            answers.right[winners:] -= 1 if number else 0
            return answers

        return answered

    few, many = (searched(population, answer=answer(winners))[-1] for winners in (34, 40))
    assert few.result.round == 0 < few.best_round
    assert many.result.round == many.best_round > 0


def test_a_lower_loss_must_be_beyond_chance() -> None:
    """As in scipy's t-test, with the losses of clients that are left out."""
    decisions = set()
    for seed in range(30):
        search = searched(made(4, 2, seed, spread=1.2, orders=0), limit=2)[-1]
        slopes = search.best.slopes * search.region.unit
        left_out = losses_left_out(search.region, search.best.losses, slopes, MEAN)
        test = scipy.stats.ttest_1samp(search.plain.losses - left_out, 0, alternative="greater")
        helps = shown_to_help(search.region, search.plain, search.best, MEAN)
        assert helps == (test.pvalue < 0.05)
        decisions.add(helps)
    assert decisions == {True, False}


def test_a_short_radius_hides_nothing() -> None:
    """How much clients that are left out gain does not depend on how far the last step was trusted."""
    search = searched(made(5, 4, seed=3, spread=1.0, orders=0), limit=3)[-1]
    region = search.region
    gains = [
        loss_gain(replace(region, radius=share * region.first_radius), search.plain, search.best, MEAN)
        for share in (0.01, 0.3, 1.0)
    ]
    assert gains[0] == gains[1] == gains[2]
    assert gains[0] is not None
    assert gains[0].mean < float((search.plain.losses - search.best.losses).mean())


def test_a_client_without_accuracy_does_not_disable_the_test_for_others() -> None:
    population = made(6, 2, orders=0)
    plain, answers = (with_right(population.answers(zeros(population)), right) for right in (5, 6))
    answers.right[0] = UNKNOWN
    change = accuracy_gain(plain, answers, MEAN)
    assert change == (pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1), 5)
    nobody = with_right(answers, UNKNOWN)
    assert accuracy_gain(plain, nobody, MEAN) is None
    nobody.right[3] = 9
    only = accuracy_gain(plain, nobody, MEAN)
    assert only is not None
    assert only.low == -math.inf


@pytest.mark.parametrize("kind", ["mean", "median", "trimmed", "krum"])
@pytest.mark.parametrize(
    ("better", "worse", "shown"), [(16, 0, True), (12, 1, True), (8, 7, False), (0, 9, False)]
)
def test_accuracy_of_clients_most_of_which_change_alike(
    kind: str, better: int, worse: int, shown: bool
) -> None:
    """Changes of one prediction, as with few samples: more than half of the clients may have the same one."""
    population = made(31, 2, orders=0)
    before = with_right(population.answers(zeros(population)), 5)
    after = with_right(before, 5)
    after.right[:better] += 1
    after.right[better : better + worse] -= 1
    change = accuracy_gain(before, after, Average(kind))
    assert change is not None
    assert (change.low > 0) == shown
    assert change.low < change.mean < change.high


def test_one_client_cannot_show_that_accuracy_rises() -> None:
    """With a robust average, however large the change is that it claims."""
    population = made(31, 2, orders=0)
    before = with_right(population.answers(zeros(population)), 5)
    after = with_right(before, 5)
    after.right[0] = 10_000
    change = accuracy_gain(before, after, Average("median"))
    assert change is not None
    assert change.low < 0


def test_without_a_check_the_lowest_loss_is_returned() -> None:
    population = made()

    def answers(x: Tensor) -> Answers:
        return with_right(population.answers(x), 5)

    def last(check: bool) -> RateSearch:
        search = started(answers(zeros(population)), MEAN, zeros(population).float(), bound(population))
        while not search.reason and search.rounds < 25:
            search = advanced(search, answers(search.trial), MEAN, check=check)
        return search

    assert torch.equal(last(False).result.rates, last(False).region.center)
    assert torch.equal(last(False).region.center, last(True).region.center)
    assert last(True).result.round == 0 < last(False).result.round


@pytest.mark.parametrize("factor", [-1e-3, -1e-5, 1e-3])
def test_given_rates_that_are_almost_zero_do_not_end_the_search(factor: float) -> None:
    population = made(30)
    last = searched(population, given=(factor * population.lowest()).float())[-1]
    begin, end, best = (
        population.mean(x) for x in (zeros(population), last.region.center, population.lowest())
    )
    assert end - best < 0.05 * (begin - best)


@pytest.mark.parametrize("scale", [1e-3, 1e-5])
def test_a_rate_that_is_almost_optimal_does_not_stop_the_others(scale: float) -> None:
    """At rates of zero its slopes are small, so that its unit is much too large."""
    gains = []
    for seed in range(6):
        population = made(60, 7, seed, orders=0)
        population.minima[:, 0] *= scale
        last = searched(population)[-1]
        begin, end, best = (
            population.mean(x) for x in (zeros(population), last.region.center, population.lowest())
        )
        gains.append((begin - end) / (begin - best))
    assert sorted(gains)[1] > 0.7


@pytest.mark.parametrize("kind", ["median", "trimmed", "krum"])
def test_a_byzantine_client_in_the_first_round(kind: str) -> None:
    """It cannot decide what the curvature looks like."""
    population = made(40, 4, orders=0)

    def answer(number: int, x: Tensor) -> Answers:
        answers = population.answers(x)
        if not number:
            answers.slopes[0] = 1e9 * torch.tensor([1.0, -1.0, 1.0, -1.0])
        return answers

    last = searched(population, Average(kind, 0.1), answer=answer)[-1]
    begin, end, best = (
        population.mean(x) for x in (zeros(population), last.region.center, population.lowest())
    )
    assert end - best < 0.2 * (begin - best)


def test_krum_asks_again_if_too_few_clients_answered_both_times() -> None:
    population, krum = made(9, 3, orders=0), Average("krum", 0.1)

    def answer(number: int, x: Tensor) -> Answers:
        some = torch.arange(0, 6) if number % 2 == 0 else torch.arange(4, 9)
        return population.answers(x, some)

    history = searched(population, krum, answer=answer, limit=6)
    assert history[1].rounds == 2
    assert torch.equal(history[1].trial, history[0].trial)
