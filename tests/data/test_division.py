"""Images of clients: all dealt out, none twice, as many of each class as asked for."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ttpfl.data.division import Pool, _distinct, _repeated, deal, draw
from ttpfl.data.partition import Dirichlet, Iid, Partition, Step, Stratified
from ttpfl.errors import DataError

seeds = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@st.composite
def partitions(draw: st.DrawFn, classes: int) -> Partition:
    return draw(
        st.one_of(
            st.builds(
                Step,
                st.integers(1, classes),
                st.floats(1, 20),
                st.booleans() if classes < 9 else st.just(False),
            ),
            st.builds(Dirichlet, st.floats(1e-4, 100)),
            st.just(Stratified()),
        )
    )


def slow_weights(partition: Partition, clients: int, classes: int, seed: int) -> np.ndarray:
    """The first thing that is drawn."""
    return partition.weights(clients, classes, rng(seed))


@given(st.data(), st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), seeds)
@settings(deadline=None, max_examples=200)
def test_all_images_are_dealt_out_and_none_twice(
    data: st.DataObject, clients: int, classes: int, skew: float, seed: int
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 400), min_size=classes, max_size=classes))
    labels = rng(seed).permutation(np.repeat(np.arange(classes), sizes))
    partition = data.draw(partitions(classes))
    weights = slow_weights(partition, clients, classes, seed)
    wanted = weights.sum(0) > 0
    exact = weights / np.where(wanted, weights.sum(0), 1) * sizes
    refused = ""
    try:
        dealt = deal(Pool.of(labels, classes), clients, partition, None, skew, rng(seed))
    except DataError as error:
        refused = str(error)
    if refused:
        assert "too few images" in refused
        lacking = partition.every_class and exact.min() < 1
        assert skew > 0 or lacking or exact.sum(1).min() < classes + 2  # it was refused for a reason
        return
    assert len(dealt) == clients
    own = [dealt[client] for client in range(clients)]
    assert sorted(np.concatenate(own).tolist()) == list(range(len(labels)))
    assert min(map(len, own)) >= 2
    counts = np.array([np.bincount(labels[ids], minlength=classes) for ids in own])
    if partition.every_class:
        assert counts.all()
    if skew == 0:
        assert np.abs(counts - exact)[:, wanted].max(initial=0) < 1 + 1e-6


@given(st.data(), st.integers(1, 12), st.integers(1, 12), st.integers(2, 60), seeds)
@settings(deadline=None, max_examples=200)
def test_so_many_samples_as_asked_for(
    data: st.DataObject, clients: int, classes: int, samples: int, seed: int
) -> None:
    partition = data.draw(partitions(classes))
    labels = rng(seed).permutation(np.repeat(np.arange(classes), clients * samples))  # always enough
    if partition.every_class:
        weights = slow_weights(partition, clients, classes, seed)
        assume((weights / weights.sum(1, keepdims=True) * samples).min() >= 1)
    dealt = deal(Pool.of(labels, classes), clients, partition, samples, 0.0, rng(seed))
    weights = slow_weights(partition, clients, classes, seed)
    for client in range(clients):
        counts = np.bincount(labels[dealt[client]], minlength=classes)
        assert counts.sum() == samples
        assert np.abs(counts - weights[client] / weights[client].sum() * samples).max() < 1 + 1e-6
    assert len(np.unique(dealt.ids)) == clients * samples


def test_iid_counts_are_hypergeometric() -> None:
    labels = np.repeat(np.arange(4), [400, 300, 200, 100])
    pool = Pool.of(np.zeros_like(labels), 1)
    dealt = [deal(pool, 10, Iid(), None, 0.0, rng(seed)) for seed in range(200)]
    counts = np.array([np.bincount(labels[d[k]], minlength=4) for d in dealt for k in range(10)])
    share = np.array([0.4, 0.3, 0.2, 0.1])
    assert (counts.sum(1) == 100).all()
    np.testing.assert_allclose(counts.mean(0), 100 * share)  # each of the 200 times exactly
    variance = 100 * share * (1 - share) * (1000 - 100) / (1000 - 1)
    np.testing.assert_allclose(counts.var(0), variance, rtol=0.15)


def test_quantity_skew_is_that_of_the_sizes() -> None:
    pool = Pool.of(np.zeros(400_000, np.int64), 1)
    for samples in (None, 200):
        dealt = deal(pool, 1000, Iid(), samples, 0.5, rng(4))
        sizes = np.diff(dealt.ends, prepend=0)
        assert np.log(sizes).std() == pytest.approx(0.5, rel=0.1)
        assert sizes.mean() == pytest.approx(400 if samples is None else 200, rel=0.1)
        assert len(np.unique(dealt.ids)) == sizes.sum()


def test_ids_cannot_be_changed_by_accident() -> None:
    dealt = deal(Pool.of(np.arange(40) % 2, 2), 4, Stratified(), None, 0.0, rng())
    with pytest.raises(ValueError, match="read-only"):
        dealt[1].sort()


@pytest.mark.parametrize(
    ("partition", "samples", "message"),
    [
        (
            Stratified(),
            60,
            r"10 clients with 60 samples each need 120 of class 0 \(100 available\), 120 of cl",
        ),
        (Iid(), 60, r"10 clients with 60 samples each need 600 \(500 available\): use fewer"),
        (Step(1, 100), None, r"leaves client \d+ without any of class \d \(100 available\)"),
        (Stratified(), 3, r"leaves client \d+ without any of class \d"),
    ],
)
def test_too_few_images_are_an_error_with_the_numbers(
    partition: Partition, samples: int | None, message: str
) -> None:
    classes = 5 if partition.by_class else 1
    pool = Pool.of(np.arange(500) % classes, classes)
    with pytest.raises(DataError, match=f"too few images: .*{message}"):
        deal(pool, 10, partition, samples, 0.0, rng())


def test_a_client_has_at_least_two_images() -> None:
    pool = Pool.of(np.zeros(15, np.int64), 1)
    with pytest.raises(DataError, match=r"leaves one with 1 of the 15 images, but each needs at least 2"):
        deal(pool, 10, Iid(), None, 0.0, rng())
    assert np.diff(deal(pool, 7, Iid(), None, 0.0, rng()).ends, prepend=0).min() == 2


@given(st.data(), st.integers(1, 8), st.integers(2, 40), st.floats(0, 0.4), seeds)
@settings(deadline=None)
def test_drawn_clients_never_have_an_image_twice_and_are_always_the_same(
    data: st.DataObject, classes: int, samples: int, skew: float, seed: int
) -> None:
    labels = rng(seed).integers(classes, size=classes * 2000)
    partition = data.draw(partitions(classes).filter(lambda partition: not partition.every_class))
    drawn = draw(Pool.of(labels, classes), 10**6, partition, samples, skew, (seed,))
    clients = data.draw(st.lists(st.integers(0, 10**6 - 1), min_size=2, max_size=5, unique=True))
    first = {client: drawn[client] for client in clients}
    for client in reversed(clients):
        ids = drawn[client]
        assert np.array_equal(ids, first[client])
        assert len(np.unique(ids)) == len(ids)
        assert len(ids) == samples or skew > 0


def test_drawn_clients_have_the_class_counts_of_the_step_partition() -> None:
    labels = rng(1).permutation(np.repeat(np.arange(10), 300))
    drawn = draw(Pool.of(labels, 10), 2000, Step(2, 16), 200, 0.0, (5,))
    counts = np.array([np.bincount(labels[drawn[client]], minlength=10) for client in range(2000)])
    assert (np.sort(counts) == [5] * 8 + [80] * 2).all()
    majors = (counts == 80).sum(0)
    assert ((majors - 400) ** 2 / 400).sum() < 33.7  # chi-square, 9 degrees of freedom: 0.0001


def test_every_image_is_drawn_equally_often_and_at_every_place() -> None:
    """One class by trying again (5 of 40), the other by a choice without replacement (13 of 20)."""
    pool = Pool(np.arange(60) + 7, np.array([20, 40]))
    random = rng(0)
    drawn = np.array([_distinct(pool, np.array([13, 5]), random) for _ in range(4000)])
    assert all(len(np.unique(row)) == 18 for row in drawn)
    times = np.bincount(drawn.ravel() - 7, minlength=60)
    # Without replacement the variance is smaller than that of independent draws: a lenient chi-square.
    for part, each in ((times[:20], 2600), (times[20:], 500)):
        assert ((part - each) ** 2 / each).sum() < len(part) + 5 * (2 * len(part)) ** 0.5
    of_first_class = (drawn < 27).mean(0)
    np.testing.assert_allclose(of_first_class, 13 / 18, atol=5 * (13 / 18 * 5 / 18 / 4000) ** 0.5)


@given(st.lists(st.integers(0, 9)))
def test_repeated(values: list[int]) -> None:
    slow = [place for place, value in enumerate(values) if value in values[:place]]
    assert sorted(_repeated(np.array(values, np.int64)).tolist()) == slow


def test_drawing_needs_enough_images() -> None:
    pool = Pool.of(np.arange(300) % 10, 10)
    with pytest.raises(DataError, match=r"needs 80 different ones of class \d, but only 30 are available"):
        draw(pool, 1000, Step(2, 16), 200, 0.0, (0,))
    nothing_told_apart = Pool.of(np.zeros(150, np.int64), 1)
    with pytest.raises(DataError, match=r"needs 200 different ones, but only 150 are available"):
        draw(nothing_told_apart, 1000, Iid(), 200, 0.0, (0,))
    all_of_them = draw(nothing_told_apart, 1000, Iid(), 150, 0.0, (0,))
    assert sorted(all_of_them[5].tolist()) == list(range(150))


@pytest.mark.parametrize("partition", [Step(2, 16), Stratified()])
def test_drawn_clients_have_all_classes_where_that_is_promised(partition: Partition) -> None:
    pool = Pool.of(np.arange(3000) % 10, 10)
    with pytest.raises(DataError, match=r"a client with 8 samples has none of some class"):
        draw(pool, 1000, partition, 8, 0.0, (0,))
