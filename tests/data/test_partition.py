"""Class weights of clients, and whole numbers from them: against closed forms."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttpfl.data.partition import Dirichlet, Iid, Step, Stratified, apportion, relative_sizes
from ttpfl.errors import DataError

seeds = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(data=st.data(), clients=st.integers(1, 60), classes=st.integers(1, 30), seed=seeds)
@settings(deadline=None)
def test_step_has_distinct_majors_and_all_classes_are_majors_equally_often(
    data: st.DataObject, clients: int, classes: int, seed: int
) -> None:
    majors = data.draw(st.integers(1, classes))
    ratio = data.draw(st.floats(1.001, 1e6))
    weights = Step(majors, ratio).weights(clients, classes, rng(seed))
    is_major = ~np.isclose(weights, 1, rtol=1e-9)
    assert (is_major.sum(1) == majors).all()
    np.testing.assert_allclose(weights[is_major], ratio)
    assert np.ptp(is_major.sum(0)) <= 1


@pytest.mark.parametrize(("classes", "majors", "times"), [(10, 2, 3), (3, 3, 2), (4, 1, 5), (1, 4, 2)])
def test_repeated_majors_are_all_ordered_tuples(classes: int, majors: int, times: int) -> None:
    expected: Counter[tuple[float, ...]] = Counter()
    for chosen in product(range(classes), repeat=majors):
        expected[tuple(1 + 15.0 * chosen.count(c) for c in range(classes))] += times
    rule = Step(majors, 16, repeat_majors=True)
    weights = rule.weights(times * classes**majors, classes, rng(3))
    assert Counter(map(tuple, weights.tolist())) == expected


def test_majors_are_in_no_order() -> None:
    """Target clients are the last ones: they must not get what was left over."""
    for repeat in (False, True):
        last = [Step(1, 9, repeat).weights(10, 10, rng(seed))[-1].argmax() for seed in range(400)]
        counts = np.bincount(last, minlength=10)
        assert ((counts - 40) ** 2 / 40).sum() < 33.7  # chi-square, 9 degrees of freedom: 0.0001


def test_majors_that_cannot_be() -> None:
    with pytest.raises(DataError, match="majors is 3, but there are only 2 classes"):
        Step(3, 2).weights(4, 2, rng())
    with pytest.raises(DataError, match="majors is 25: there are too many tuples of 10 classes"):
        Step(25, 2, repeat_majors=True).weights(4, 10, rng())


@pytest.mark.parametrize(("alpha", "classes"), [(0.05, 10), (0.5, 10), (5.0, 4), (100.0, 100)])
def test_dirichlet_has_the_right_mean_and_variance(alpha: float, classes: int) -> None:
    clients = 20_000
    weights = Dirichlet(alpha).weights(clients, classes, rng(1))
    np.testing.assert_allclose(weights.sum(1), 1)
    mean = 1 / classes
    variance = mean * (1 - mean) / (classes * alpha + 1)
    np.testing.assert_allclose(weights.mean(0), mean, atol=5 * (variance / clients) ** 0.5)
    np.testing.assert_allclose(weights.var(0).mean(), variance, rtol=0.05)


def test_even_partitions_are_even() -> None:
    assert (Stratified().weights(3, 4, rng()) == np.ones((3, 4))).all()
    assert (Iid().weights(3, 1, rng()) == np.ones((3, 1))).all()


@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0])
def test_sizes_are_log_normal_around_one(skew: float) -> None:
    sizes = relative_sizes(100_000, skew, rng(2))
    assert sizes.mean() == pytest.approx(1, abs=0.03)
    assert np.log(sizes).std() == pytest.approx(skew, rel=0.02)
    assert np.median(sizes) == pytest.approx(np.exp(-(skew**2) / 2), rel=0.02)


@given(
    shares=st.lists(st.integers(0, 500), min_size=1, max_size=30), total=st.integers(0, 10_000), seed=seeds
)
def test_whole_numbers_are_those_of_the_largest_remainders(shares: list[int], total: int, seed: int) -> None:
    if not any(shares):
        shares[0] = 1
    counts = apportion(np.array(shares, float), total, rng(seed)).tolist()
    exact = [Fraction(share, sum(shares)) * total for share in shares]
    assert sum(counts) == total
    more = [count - value.__floor__() for count, value in zip(counts, exact, strict=True)]
    assert set(more) <= {0, 1}
    rest = [value - value.__floor__() for value in exact]
    if 1 in more:
        risen = min(r for r, m in zip(rest, more, strict=True) if m)
        assert risen > 0
        assert all(r <= risen for r, m in zip(rest, more, strict=True) if not m)


def test_ties_are_broken_at_random() -> None:
    got = sum(apportion(np.ones(4), 1, rng(seed)) for seed in range(2000))
    assert ((got - 500) ** 2 / 500).sum() < 21.1  # chi-square, 3 degrees of freedom: 0.0001


@pytest.mark.parametrize("shares", [np.zeros(5), np.array([0, 5e-324, 0, 0, 0])])
def test_shares_that_vanish_still_give_everything_to_someone(shares: np.ndarray) -> None:
    counts = [apportion(shares, 100, rng(seed)) for seed in range(50)]
    assert all(sorted(count.tolist()) == [0, 0, 0, 0, 100] for count in counts)
    assert {int(count.argmax()) for count in counts} == (set(range(5)) if not shares.any() else {1})
