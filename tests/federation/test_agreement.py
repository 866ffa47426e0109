"""Steps that help clients which had no say in them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ttpfl.federation.server.agreement import losses_left_out, proposed, shrunk
from ttpfl.federation.server.robust import Average
from ttpfl.federation.server.trust_region import Region, decrease, steps

AVERAGES = [Average("mean"), Average("median"), Average("trimmed", 0.2), Average("krum", 0.2)]
ROBUST = AVERAGES[1:]
MEAN = AVERAGES[0]


def name_of(average: Any) -> str:
    return str(average.kind)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_region(count: int, radius: float = 1.0) -> Region:
    root = normal(count, count, seed=5)
    zeros, ones = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64)
    return Region(zeros, ones, root @ root.T + torch.eye(count, dtype=torch.float64), radius, radius)


@pytest.mark.parametrize("average", AVERAGES, ids=name_of)
@pytest.mark.parametrize("radius", [0.05, 100.0])
def test_clients_that_agree(average: Average, radius: float) -> None:
    """The step is that of their common slope, on the border of the region or inside."""
    region, slope = some_region(4, radius), normal(4)
    step = steps(region, slope[None])
    proposal = proposed(region, slope.expand(30, -1), average)
    assert proposal is not None
    torch.testing.assert_close(proposal.step, step[0])
    gain = float(decrease(region, slope[None], step))
    assert proposal.predicted == pytest.approx(gain)
    assert proposal.expected == pytest.approx(gain)


def test_many_clients_that_nearly_agree() -> None:
    """The more clients, the closer to the step of the slope they have in common."""
    region, slope = some_region(4), normal(4)
    step = steps(region, slope[None])[0]
    for clients, limit in ((20, 0.3), (2000, 0.03)):
        slopes = slope + 0.3 * normal(clients, 4, seed=1)
        proposal = proposed(region, slopes, MEAN)
        assert proposal is not None
        assert float((proposal.step - step).norm()) < limit * region.radius
        # A part of the gain at these clients is theirs alone.
        assert 0 < proposal.expected < proposal.predicted


@pytest.mark.parametrize("average", AVERAGES, ids=name_of)
@pytest.mark.parametrize("pairs", [2, 5, 20])
def test_clients_that_contradict_each_other(average: Average, pairs: int) -> None:
    """To every slope there is the opposite one."""
    slopes = normal(pairs, 3)
    assert proposed(some_region(3), torch.cat([slopes, -slopes]), average) is None


def test_slopes_of_random_signs() -> None:
    """Chance may look like agreement, but then little is expected: far less than what was promised."""
    region, clients = some_region(3), 60
    found = [proposed(region, normal(clients, 3, seed=seed), MEAN) for seed in range(15)]
    steps_taken = [proposal for proposal in found if proposal is not None]
    agreed = proposed(region, 1 + normal(clients, 3), MEAN)
    assert agreed is not None
    assert len(steps_taken) < 10
    assert all(proposal.expected < 0.1 * agreed.expected for proposal in steps_taken)


def test_only_the_coordinates_with_agreement_move() -> None:
    """All clients want to move along the first; along the others, each wants something else."""
    zeros, ones = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    region = Region(zeros, ones, torch.diag(ones), 10.0, 1.0)
    found, plain = 0.0, 0.0
    for seed in range(6):
        slopes = normal(40, 6, seed=seed)
        slopes[:, 0] = 1 + 0.1 * slopes[:, 0]
        proposal = proposed(region, slopes, MEAN)
        assert proposal is not None
        assert proposal.step[0].item() == pytest.approx(-1, abs=0.1)
        found += float(proposal.step[1:].square().sum())
        plain += float(steps(region, slopes.mean(0)[None])[0, 1:].square().sum())
    assert found < 0.5 * plain


@pytest.mark.parametrize("average", [*AVERAGES[:2], Average("trimmed", 0.0)], ids=name_of)
def test_one_and_two_clients(average: Average) -> None:
    region, slope = some_region(2), normal(2)
    assert proposed(region, slope[None], average) is None
    assert proposed(region, torch.stack([slope, -slope]), average) is None
    both = proposed(region, torch.stack([slope, slope]), average)
    assert both is not None
    torch.testing.assert_close(both.step, steps(region, slope[None])[0])


def test_nothing_is_proposed_without_slopes() -> None:
    assert proposed(some_region(3), torch.zeros(9, 3, dtype=torch.float64), MEAN) is None


def test_expected_is_what_clients_left_out_gain() -> None:
    """By really leaving out each client, for slopes that are not shrunk and a step inside the region."""
    region, slopes = some_region(3, radius=1e3), 3 + normal(12, 3, seed=3)
    gains = []
    for left_out in range(12):
        others = torch.cat([slopes[:left_out], slopes[left_out + 1 :]]).mean(0)
        step = -torch.linalg.solve(region.curvature, others)
        gains.append(float(-slopes[left_out] @ step - step @ region.curvature @ step / 2))
    proposal = proposed(region, slopes, MEAN)
    assert proposal is not None
    # The best of several ways to shrink, so at least that of no shrinking; and not much more.
    mean = sum(gains) / 12
    assert mean * (1 - 1e-6) <= proposal.expected < 1.2 * mean


@pytest.mark.parametrize("clients", [2, 3, 10, 50])
def test_losses_left_out_of_quadratic_losses(clients: int) -> None:
    """With one curvature and many minima: without a client, the search ends at the mean of the others."""
    curvature = some_region(3).curvature
    minima, lowest = normal(clients, 3, seed=4), normal(clients, seed=6).abs()

    def losses(points: Tensor) -> Tensor:
        away = points - minima
        return lowest + ((away @ curvature) * away).sum(1) / 2

    center = minima.mean(0)
    region = Region(center, torch.ones(3, dtype=torch.float64), curvature, 1e6, 1.0)
    slopes = (center - minima) @ curvature
    others = torch.stack([torch.cat([minima[:i], minima[i + 1 :]]).mean(0) for i in range(clients)])
    found = losses_left_out(region, losses(center.expand(clients, -1)), slopes, MEAN)
    torch.testing.assert_close(found, losses(others), rtol=1e-5, atol=1e-5)
    assert (found > losses(center.expand(clients, -1))).all()


def test_losses_left_out_before_the_end_of_a_search() -> None:
    """The same away from the minimum: what counts is the difference that leaving out makes."""
    curvature, minima = some_region(3).curvature, 2 + normal(8, 3, seed=4)
    center = torch.zeros(3, dtype=torch.float64)
    region = Region(center, torch.ones(3, dtype=torch.float64), curvature, 1e6, 1.0)
    slopes = (center - minima) @ curvature
    found = losses_left_out(region, torch.ones(8, dtype=torch.float64), slopes, MEAN)
    mean = minima.mean(0)
    for left_out in range(8):
        away = torch.cat([minima[:left_out], minima[left_out + 1 :]]).mean(0) - mean
        expected = 1 + float(slopes[left_out] @ away + away @ curvature @ away / 2)
        assert float(found[left_out]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [1e6, -1e6, 1e12])
@pytest.mark.parametrize("average", ROBUST, ids=name_of)
def test_one_byzantine_client(average: Average, bad: float) -> None:
    region, slopes = some_region(4), 1 + 0.1 * normal(15, 4)
    honest = proposed(region, slopes, average)
    attacked = proposed(region, torch.cat([slopes, torch.full((1, 4), bad).double()]), average)
    misled = proposed(region, torch.cat([slopes, torch.full((1, 4), bad).double()]), MEAN)
    assert honest is not None
    assert attacked is not None
    assert float((attacked.step - honest.step).norm()) < 0.1 * float(honest.step.norm())
    # The mean follows it, or gives up.
    assert misled is None or float((misled.step - honest.step).norm()) > 0.1 * float(honest.step.norm())


@pytest.mark.parametrize("average", ROBUST, ids=name_of)
def test_a_byzantine_client_and_losses_left_out(average: Average) -> None:
    """Those of the others do not change much."""
    region, slopes, losses = some_region(4), 0.1 * normal(15, 4), torch.ones(16, dtype=torch.float64)
    before = losses_left_out(region, losses[:15], slopes, average)
    with_bad = torch.cat([slopes, torch.full((1, 4), 1e6).double()])
    after = losses_left_out(region, losses, with_bad, average)
    torch.testing.assert_close(after[:15], before, rtol=0, atol=0.05)


@pytest.mark.parametrize("average", AVERAGES, ids=name_of)
@pytest.mark.parametrize("seed", range(5))
def test_averages_have_the_same_bits_in_any_order(average: Average, seed: int) -> None:
    rows = 1e3 ** normal(13, 5, seed=seed)
    for turn in range(5):
        order = torch.randperm(13, generator=torch.Generator().manual_seed(turn))
        assert torch.equal(average.of_rows(rows[order]), average.of_rows(rows))
        assert average.of_numbers(rows[order, 0]) == average.of_numbers(rows[:, 0])
        assert torch.equal(average.mean_square(rows[order]), average.mean_square(rows))
        torch.testing.assert_close(average.variance(rows[order]), average.variance(rows), rtol=1e-12, atol=0)


@pytest.mark.parametrize("average", AVERAGES, ids=name_of)
def test_the_order_of_clients_does_not_matter(average: Average) -> None:
    """Up to rounding in sums over clients; `Answers` are sorted, so the same runs have the same bits."""
    region, slopes = some_region(6), 0.7 + normal(17, 6, seed=8)
    expected = proposed(region, slopes, average)
    assert expected is not None
    for turn in range(2):
        order = torch.randperm(17, generator=torch.Generator().manual_seed(turn))
        found = proposed(region, slopes[order], average)
        assert found is not None
        torch.testing.assert_close(found.step, expected.step, rtol=1e-9, atol=1e-12)
        assert found.expected == pytest.approx(expected.expected, rel=1e-9)


def test_averages_are_in_double_precision() -> None:
    rows = torch.tensor([[0.1], [0.2]], dtype=torch.float64)
    for average in (MEAN, Average("median"), Average("trimmed", 0.2)):
        assert float(average.of_rows(rows)) == pytest.approx(0.15, rel=1e-15)
        assert average.of_numbers(1e300 * rows[:, 0]) == pytest.approx(1.5e299, rel=1e-15)


def test_robust_averages_against_obvious_ones() -> None:
    rows = normal(9, 3)
    ordered = rows.sort(dim=0).values
    torch.testing.assert_close(Average("mean").of_rows(rows), rows.mean(0), rtol=1e-6, atol=1e-7)
    assert torch.equal(Average("median").of_rows(rows), ordered[4])
    torch.testing.assert_close(Average("trimmed", 0.25).of_rows(rows), ordered[2:7].mean(0))
    chosen = Average("krum", 0.2).of_rows(rows)
    assert any(torch.equal(chosen, row) for row in rows)
    distances = [sorted(float((row - other).square().sum()) for other in rows)[1:6] for row in rows]
    assert torch.equal(chosen, rows[min(range(9), key=lambda row: sum(distances[row]))])


def test_shrinking() -> None:
    """Nothing changes sign, and what is within `factor` standard errors is gone."""
    slope, variance = normal(200), normal(200, seed=1).square()
    for factor in (0.0, 0.5, 1.0, 3.0):
        small = shrunk(slope, variance, factor)
        gone = slope.abs() <= factor * variance.sqrt()
        assert (small[gone].abs() < 1e-12).all()
        assert (small[~gone] * slope[~gone] > 0).all()
        assert (small.abs() <= slope.abs()).all()
    assert torch.equal(shrunk(slope, variance, 0.0), slope)
    assert not shrunk(torch.zeros(3), torch.ones(3), 1.0).any()
