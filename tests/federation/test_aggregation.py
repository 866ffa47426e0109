"""The server's step: against numpy, in any order."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttpfl
from tests.helpers.small_clients import linear, mlp
from ttpfl.core.learning import draw_cohort
from ttpfl.errors import FederationError, ModelError
from ttpfl.federation.common.state_vector import layout_of, pack, unpack
from ttpfl.federation.server.aggregation import QFFL, Algorithm, FedAvg, FedProx, Reply, Sums
from ttpfl.federation.server.rate_average import check_cohort, combined, min_results

LAYOUT = layout_of(mlp())
CURRENT = pack(mlp(1), torch.empty(LAYOUT.length))


def replies(count: int = 5) -> list[Reply]:
    generator = torch.Generator().manual_seed(0)
    return [
        Reply(
            CURRENT + 0.1 * torch.randn(LAYOUT.length, generator=generator),
            samples=3 + 7 * number,
            loss_before=0.3 + number / 2,
        )
        for number in range(count)
    ]


def result(algorithm: Algorithm, received: list[Reply], lr: float = 0.1) -> Tensor:
    sums = Sums(torch.zeros(LAYOUT.length, dtype=torch.float64))
    for reply in received:
        algorithm.add(sums, reply, CURRENT, LAYOUT, lr)
    return algorithm.finish(sums, CURRENT, LAYOUT)


def slow_qffl(received: list[Reply], q: float, lr: float) -> np.ndarray[Any, Any]:
    """Algorithm 2 of the paper with L = 1 / lr; buffers as the mean with weights F^q."""
    split = LAYOUT.buffers_from
    w = CURRENT.double().numpy()
    total, h_total = np.zeros(split), 0.0
    for reply in received:
        local, loss = reply.vector.double().numpy(), reply.loss_before
        step = (w[:split] - local[:split]) / lr
        total += loss**q * step
        h_total += q * loss ** (q - 1) * np.sum(step**2) + loss**q / lr
    weights = np.array([reply.loss_before**q for reply in received])
    buffers = np.stack([reply.vector.double().numpy()[split:] for reply in received])
    return np.concatenate([w[:split] - total / h_total, weights @ buffers / weights.sum()])


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(0.3)])
def test_weighted_mean(algorithm: Algorithm) -> None:
    received = replies()
    stacked = np.stack([reply.vector.double().numpy() for reply in received])
    expected = np.average(stacked, axis=0, weights=[reply.samples for reply in received])
    np.testing.assert_allclose(result(algorithm, received).double(), expected, rtol=0, atol=1e-7)


def test_one_client_and_equal_clients_come_out_exactly() -> None:
    reply = replies()[3]
    assert torch.equal(result(FedAvg(), [reply]), reply.vector)
    same = [Reply(reply.vector, samples, 1.0) for samples in (1, 160, 7, 59999)]
    assert torch.equal(result(FedAvg(), same), reply.vector)


@pytest.mark.parametrize("lr", [0.01, 0.1, 1.0])
def test_qffl_without_q_is_the_plain_mean(lr: float) -> None:
    expected = torch.stack([reply.vector.double() for reply in replies()]).mean(0)
    assert (result(QFFL(0.0), replies(), lr).double() - expected).abs().max() < 1e-6
    assert not QFFL(0.0).needs_loss_before
    assert QFFL(0.5).needs_loss_before


@pytest.mark.parametrize("q", [0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("lr", [0.01, 0.5])
def test_qffl_against_its_formula(q: float, lr: float) -> None:
    got = result(QFFL(q), replies(), lr).double().numpy()
    np.testing.assert_allclose(got, slow_qffl(replies(), q, lr), rtol=0, atol=1e-6)


def test_qffl_survives_a_client_without_any_loss() -> None:
    received = [*replies(2), Reply(CURRENT.clone(), 5, 0.0)]
    assert torch.isfinite(result(QFFL(0.5), received)).all()


def test_sums_do_not_grow() -> None:
    sums = Sums(torch.zeros(LAYOUT.length, dtype=torch.float64))
    before = sums.vector.data_ptr()
    for reply in replies(50):
        FedAvg().add(sums, reply, CURRENT, LAYOUT, 0.1)
    assert sums.vector.data_ptr() == before
    assert sums.vector.numel() == LAYOUT.length


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedProx(-1), "mu must be a non-negative number, got -1"),
        (lambda: QFFL(-0.5), "q must be a non-negative number, got -0.5"),
        (lambda: FedProx(float("nan")), "mu must be a non-negative number, got nan"),
    ],
)
def test_senseless_strengths(make: Any, message: str) -> None:
    with pytest.raises(FederationError, match=message):
        make()


def some_rates(count: int, seed: int = 0) -> list[ttpfl.Rates]:
    generator = torch.Generator().manual_seed(seed)
    rates = [ttpfl.Rates.zeros(linear()) for _ in range(count)]
    for one in rates:
        one.values = torch.randn(2, generator=generator)
    return rates


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 12), trim=st.floats(0, 0.49), seed=st.integers(0, 99))
def test_robust_averages_against_numpy(count: int, trim: float, seed: int) -> None:
    rates = some_rates(count, seed)
    table = np.stack([one.values.double().numpy() for one in rates])
    cut = int(trim * count)
    ordered = np.sort(table, axis=0)[cut : count - cut]
    for average, expected in (
        ("mean", table.mean(0)),
        ("median", np.median(table, axis=0)),
        ("trimmed", ordered.mean(0)),
    ):
        got = combined(rates, average, trim).values
        np.testing.assert_allclose(got.double(), expected, rtol=0, atol=1e-6)
        backwards = combined(rates[::-1], average, trim).values
        assert torch.equal(got, backwards)  # in any order of the clients


def test_a_byzantine_client_cannot_move_robust_averages() -> None:
    rates = some_rates(9)
    honest = combined(rates, "median").values
    rates[4].values = torch.full((2,), 1e6)
    for average in ("median", "trimmed"):
        assert (combined(rates, average, trim=0.2).values - honest).abs().max() < 2
    assert combined(rates, "mean").values.max() > 1e4


def test_unknown_average() -> None:
    with pytest.raises(FederationError, match="'mode'"):
        combined(some_rates(2), "mode")


@pytest.mark.parametrize("count", [5, 9, 20])
def test_krum_is_the_client_with_the_closest_neighbours(count: int) -> None:
    rates, byzantine = some_rates(count), -(-count // 10)
    rows = [client.values.double() for client in rates]

    def score(own: int) -> float:
        others = sorted(float((rows[own] - row).square().sum()) for i, row in enumerate(rows) if i != own)
        return sum(others[: count - byzantine - 2])

    best = min(range(count), key=score)
    assert torch.equal(combined(rates, "krum", 0.1).values, rates[best].values)
    assert torch.equal(combined(rates[::-1], "krum", 0.1).values, rates[best].values)


def test_krum_is_not_moved_by_byzantine_clients() -> None:
    rates = some_rates(10)
    for client in rates[:3]:
        client.values[:] = 1000.0
    chosen = combined(rates, "krum", 0.3).values
    assert any(torch.equal(chosen, honest.values) for honest in rates[3:])


def test_krum_says_how_many_clients_it_needs() -> None:
    with pytest.raises(
        FederationError,
        match="at least 5 clients to tolerate 2 Byzantine clients, but only 4 returned a result",
    ):
        combined(some_rates(4), "krum", 0.4)


@settings(max_examples=100, deadline=None)
@given(trim=st.floats(0.01, 0.49))
def test_the_least_number_of_results_is_the_least(trim: float) -> None:
    needed = min_results("trimmed", trim)
    assert [int(trim * clients) > 0 for clients in (needed - 1, needed)] == [False, True]
    needed = min_results("krum", trim)
    combined(some_rates(needed), "krum", trim)
    with pytest.raises(FederationError, match="krum needs"):
        combined(some_rates(needed - 1), "krum", trim)


@pytest.mark.parametrize(
    ("average", "trim", "cohort", "words"),
    [
        ("trimmed", 0.1, 3, r"fewer than 10 clients per round, and there are 3: set trim=0\.334, or use"),
        ("trimmed", 0.1, 2, "there are 2: use average='median'"),
        ("krum", 0.1, 3, "needs at least 4 clients per round, but there are 3: use average='median'"),
    ],
)
def test_too_few_clients_for_an_average(average: str, trim: float, cohort: int, words: str) -> None:
    with pytest.raises(FederationError, match=words):
        check_cohort(average, trim, cohort)
    check_cohort(average, trim, 10)
    check_cohort("trimmed", 0.334, 3)
    check_cohort("trimmed", 0.0, 1)


def test_state_vector_there_and_back() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.register_buffer("count", torch.tensor(5))

    model, other = Tied().half(), Tied().half()
    layout = layout_of(model)
    assert layout.dtype == torch.float32
    assert layout.length == 9 + 3 + 3  # the shared weight once; no count
    vector = pack(model, torch.empty(layout.length))
    unpack(vector, other)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert other.a.weight is other.b.weight
    for entry in layout.entries:
        part = vector[entry.start : entry.stop].view(entry.shape)
        assert torch.equal(part, model.get_parameter(entry.name).float())
    assert layout_of(linear().double()).dtype == torch.float64


def test_what_cannot_be_averaged() -> None:
    with pytest.raises(ModelError, match="nothing to train"):
        layout_of(nn.ReLU())
    model = linear()
    model.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ModelError, match=r"phase is torch\.complex64"):
        layout_of(model)


def test_cohorts_depend_on_seed_and_round_alone() -> None:
    first = [draw_cohort(range(50), 7, seed=3, number=number) for number in range(20)]
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002
    assert [draw_cohort(range(50), 7, seed=3, number=number) for number in reversed(range(20))] == first[::-1]
    assert len({tuple(cohort) for cohort in first}) > 15
    assert draw_cohort(range(50), 7, seed=4, number=0) != first[0]
    for cohort in first:
        assert len(set(cohort)) == 7
        assert set(cohort) <= set(range(50))
    seen = np.bincount(np.concatenate([draw_cohort(range(10), 3, 0, n) for n in range(2000)]), minlength=10)
    assert (abs(seen - 600) < 100).all()  # everybody gets a turn
