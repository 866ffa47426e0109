"""The trust-region method on functions whose minima are known."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ttpfl.federation.server.trust_region import Region, at, begun, decrease, judged, steps

Function = Callable[[Tensor], tuple[float, Tensor]]
"""Maps a point to its value and slope."""

scales = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3])


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@dataclass
class Run:
    region: Region
    values: list[float]
    """At the centers, in turn."""
    evaluations: int


def minimised(function: Function, start: Tensor, unit: Tensor, limit: int, goal: float = -math.inf) -> Run:
    """Run the method for at most `limit` evaluations, or until the value is below `goal`."""
    value, slope = function(start)
    region = begun(start, value, slope * unit, unit, torch.eye(len(start), dtype=torch.float64))
    run = Run(region, [value], 1)
    while run.evaluations < limit and run.values[-1] > goal:
        step = steps(run.region, (slope * unit)[None])
        predicted = float(decrease(run.region, (slope * unit)[None], step))
        if predicted <= 0 or run.region.radius < 1e-9:
            break
        trial = at(run.region, step[0])
        new, new_slope = function(trial)
        change, slope_change = new - run.values[-1], (new_slope - slope) * unit
        before = run.region
        run.region, accepted = judged(before, step[0], predicted, change, slope_change)
        run.evaluations += 1
        assert torch.equal(run.region.center, trial if accepted else before.center)
        if accepted:
            run.values.append(new)
            slope = new_slope
        else:
            assert run.region.radius < before.radius
    return run


def bowl(scales: Tensor, lowest: Tensor) -> Function:
    """A quadratic function with the value 1 at its minimum."""

    def function(x: Tensor) -> tuple[float, Tensor]:
        away = x - lowest
        return 1 + float((scales * away).dot(away)) / 2, scales * away

    return function


@pytest.mark.parametrize("count", [2, 5, 10])
@pytest.mark.parametrize(("given", "limit"), [("well", 6), ("roughly", 100), ("not", 200)])
def test_a_quadratic_of_condition_1e8(count: int, given: str, limit: int) -> None:
    """At once if the units are right, and still if they are wrong by 1e4 at both ends."""
    scales = torch.logspace(-4, 4, count, dtype=torch.float64)
    unit = {
        "well": scales.rsqrt(),
        "roughly": scales.rsqrt() * torch.logspace(-1, 1, count, dtype=torch.float64),
        "not": torch.ones(count, dtype=torch.float64),
    }[given]
    function = bowl(scales, torch.ones(count, dtype=torch.float64))
    run = minimised(function, torch.zeros(count, dtype=torch.float64), unit, limit, goal=1 + 1e-9)
    assert run.values[-1] <= 1 + 1e-9
    assert run.evaluations <= limit
    assert run.values == sorted(run.values, reverse=True)


def test_an_oblique_quadratic() -> None:
    """Its axes are not those of the coordinates, so the curvature has to be learned."""
    torch.manual_seed(1)
    axes, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))
    hessian = axes @ torch.diag(torch.logspace(-1, 2, 6, dtype=torch.float64)) @ axes.T
    lowest = torch.randn(6, dtype=torch.float64)

    def function(x: Tensor) -> tuple[float, Tensor]:
        return 1 + float((x - lowest) @ hessian @ (x - lowest)) / 2, hessian @ (x - lowest)

    run = minimised(function, torch.zeros(6, dtype=torch.float64), torch.ones(6).double(), 60, 1 + 1e-12)
    assert run.values[-1] <= 1 + 1e-12
    torch.testing.assert_close(run.region.center, lowest, rtol=0, atol=1e-5)


def rosenbrock(x: Tensor) -> tuple[float, Tensor]:
    a, b = x.tolist()
    slope = doubles(-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a))
    return (1 - a) ** 2 + 100 * (b - a * a) ** 2, slope


def test_rosenbrock() -> None:
    """Along a bent valley, within 60 evaluations of value and slope."""
    run = minimised(rosenbrock, doubles(-1.2, 1), doubles(1, 1), limit=60, goal=1e-6)
    assert run.values[-1] <= 1e-6
    further = minimised(rosenbrock, doubles(-1.2, 1), doubles(1, 1), limit=70, goal=1e-14)
    torch.testing.assert_close(further.region.center, doubles(1, 1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("beyond", [1e5, math.inf])
@pytest.mark.parametrize("start", [(-3.0, -1.0), (-40.0, 5.0), (0.0, 0.99)])
def test_a_cliff(beyond: float, start: tuple[float, float]) -> None:
    """The value jumps close behind the minimum, and there is no slope there."""
    lowest = doubles(0.6, 0.3)

    def function(x: Tensor) -> tuple[float, Tensor]:
        if float(x.sum()) > 1:
            return beyond, torch.zeros(2, dtype=torch.float64)
        return bowl(doubles(2, 30), lowest)(x)

    run = minimised(function, doubles(*start), doubles(1, 1), limit=60, goal=1 + 1e-10)
    assert run.values[-1] <= 1 + 1e-10
    torch.testing.assert_close(run.region.center, lowest, rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_noise(seed: int) -> None:
    """Values and slopes are off by a thousandth; no accepted step raises the value that was measured."""
    generator = torch.Generator().manual_seed(seed)
    exact = bowl(doubles(1, 5, 25), doubles(3, -2, 1))

    def noise(*shape: int) -> Tensor:
        return 1e-3 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    def function(x: Tensor) -> tuple[float, Tensor]:
        value, slope = exact(x)
        return value + float(noise(1)), slope + noise(3)

    run = minimised(function, doubles(0, 0, 0), doubles(1, 1, 1), limit=60)
    assert all(after < before for before, after in zip(run.values, run.values[1:], strict=False))
    assert exact(run.region.center)[0] < 1.01


def test_the_first_step_promises_a_quarter_of_the_loss() -> None:
    """Whatever the units; so it is neither tiny nor far off."""
    for size in (1e-6, 1.0, 1e6):
        slope = size * doubles(3, 4)
        region = begun(doubles(0, 0), 2.0, slope, doubles(1, 1), torch.eye(2, dtype=torch.float64))
        step = steps(region, slope[None])
        assert -float(step[0] @ slope) == pytest.approx(0.5)
        assert float(step.norm()) == pytest.approx(region.radius)
        assert not region.measured


def test_no_slope_no_step() -> None:
    region = begun(doubles(1, 2), 2.0, doubles(0, 0), doubles(1, 1), torch.eye(2, dtype=torch.float64))
    assert region.radius == 0
    assert not steps(region, doubles(0, 0)[None]).any()


def some_region(generator: torch.Generator, count: int, spread: float, radius: float) -> Region:
    axes, _ = torch.linalg.qr(torch.randn(count, count, generator=generator, dtype=torch.float64))
    values = spread ** torch.linspace(-1, 1, count, dtype=torch.float64)
    zeros, ones = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64)
    curvature = axes @ torch.diag(values) @ axes.T
    return Region(zeros, ones, (curvature + curvature.T) / 2, radius, radius)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 6),
    spread=st.sampled_from([1.0, 10.0, 1e3]),
    radius=st.sampled_from([1e-4, 0.1, 1.0, 1e3]),
    given_radius=st.booleans(),
)
def test_steps_are_the_best_within_the_radius(
    seed: int, count: int, spread: float, radius: float, given_radius: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    region = some_region(generator, count, spread, math.nan if given_radius else radius)
    slopes = torch.randn(3, count, generator=generator, dtype=torch.float64)
    found = steps(region, slopes, radius if given_radius else None)
    best = decrease(region, slopes, found)
    for slope, step, gain in zip(slopes, found, best, strict=True):
        length = float(step.norm())
        assert length <= radius * (1 + 1e-9)
        # No random step of any length within the radius is better, nor one close by.
        tries = torch.randn(300, count, generator=generator, dtype=torch.float64)
        tries = tries / tries.norm(dim=1, keepdim=True)
        tries = tries * radius * torch.rand(300, 1, generator=generator, dtype=torch.float64) ** (1 / count)
        near = step + 1e-2 * tries
        near = near * (radius / near.norm(dim=1, keepdim=True)).clamp(max=1)
        for others in (tries, near):
            assert decrease(region, slope.expand(300, -1), others).max() <= gain + 1e-9 * abs(float(gain))
        # (curvature + shift) step = -slope, with a shift of at least zero, and zero inside of the radius.
        force = -slope - region.curvature @ step
        shift = float(force @ step) / length**2
        torch.testing.assert_close(force, shift * step, rtol=0, atol=1e-6 * float(slope.norm()))
        assert shift >= -1e-6 * spread
        if length < radius * (1 - 1e-6):
            assert abs(shift) < 1e-6 * spread


def test_decrease_is_that_of_the_quadratic_model() -> None:
    torch.manual_seed(0)
    region = some_region(torch.Generator().manual_seed(0), 4, 10.0, 1.0)
    slopes, moves = torch.randn(2, 5, 4, dtype=torch.float64).unbind()
    for slope, step, found in zip(slopes, moves, decrease(region, slopes, moves), strict=True):
        assert float(found) == pytest.approx(-float(slope @ step + step @ region.curvature @ step / 2))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 5),
    updates=st.lists(st.tuples(scales, scales, st.booleans()), min_size=1, max_size=15),
)
def test_the_curvature_stays_positive_definite(
    seed: int, count: int, updates: list[tuple[float, float, bool]]
) -> None:
    """Whatever slopes are measured, also those of functions that are not convex."""
    generator = torch.Generator().manual_seed(seed)
    region = some_region(generator, count, 2.0, 1.0)
    for step_size, slope_size, lower in updates:
        step = step_size * torch.randn(count, generator=generator, dtype=torch.float64)
        slope_change = slope_size * torch.randn(count, generator=generator, dtype=torch.float64)
        region, _ = judged(region, step, 1.0, -1.0 if lower else 1.0, slope_change)
        assert torch.equal(region.curvature, region.curvature.T)
        values = torch.linalg.eigvalsh(region.curvature)
        assert values.isfinite().all()
        assert values.min() > -1e-12 * values.max()
        torch.linalg.cholesky(region.curvature + 1e-12 * values.max() * torch.eye(count).double())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 5))
def test_the_curvature_along_a_step_is_the_one_measured(seed: int, count: int) -> None:
    """The condition of quasi-Newton methods, if the function is convex enough."""
    generator = torch.Generator().manual_seed(seed)
    region, exact = (some_region(generator, count, 2.0, 1.0) for _ in range(2))
    step = torch.randn(count, generator=generator, dtype=torch.float64)
    slope_change = exact.curvature @ step
    for measured in (False, True):
        after, _ = judged(replace(region, measured=measured), step, 1.0, -1.0, slope_change)
        torch.testing.assert_close(after.curvature @ step, slope_change)
        assert after.measured


@given(
    change=st.floats(-1e3, 1e6),
    predicted=st.floats(1e-6, 1e3),
    length=st.floats(1e-3, 1.0),
)
@settings(deadline=None)
def test_what_is_accepted_and_how_the_radius_changes(change: float, predicted: float, length: float) -> None:
    region = Region(doubles(1, 2), doubles(2, 0.5), torch.eye(2, dtype=torch.float64), 1.0, 1.0)
    step = doubles(length, 0)
    after, accepted = judged(region, step, predicted, change, doubles(length, 0))
    ratio = -change / predicted
    assert accepted == (ratio > 0.05)
    assert torch.equal(after.center, doubles(1 + 2 * length, 2) if accepted else region.center)
    if ratio < 0.25:
        assert 0.1 * length * (1 - 1e-9) <= after.radius <= 0.5 * length
    elif ratio > 0.7 and length > 0.8:
        assert after.radius == 2.5
    else:
        assert after.radius == 1.0


def test_nothing_is_learned_about_the_curvature_from_slopes_that_are_not_finite() -> None:
    region = Region(doubles(0, 0), doubles(1, 1), torch.eye(2, dtype=torch.float64), 1.0, 1.0)
    after, accepted = judged(region, doubles(1, 0), 0.5, 0.5, doubles(math.inf, 0))
    assert not accepted
    assert torch.equal(after.curvature, region.curvature)
    assert after.radius <= 0.5


@pytest.mark.parametrize(("change", "accepted"), [(-1e-9, True), (0.0, False), (1e-9, False)])
def test_a_step_without_a_prediction_is_taken_if_it_helps(change: float, accepted: bool) -> None:
    region = Region(doubles(0, 0), doubles(1, 1), torch.eye(2, dtype=torch.float64), 1.0, 1.0)
    assert judged(region, doubles(3, 4), 0.0, change, doubles(3, 4))[1] is accepted


@pytest.mark.parametrize("change", [-0.1, 0.0, 0.1])
def test_a_step_of_no_length_leaves_the_curvature(change: float) -> None:
    """If the trial is rounded or cut to the center itself, nothing was measured."""
    region = Region(doubles(0, 0), doubles(1, 1), torch.eye(2, dtype=torch.float64), 1.0, 1.0)
    after, _ = judged(region, doubles(0, 0), 0.5, change, doubles(0, 0))
    assert torch.equal(after.curvature, region.curvature)


def test_coordinates_without_a_unit_stay() -> None:
    unit = doubles(1, 0)
    run = minimised(bowl(doubles(1, 1), doubles(2, 2)), doubles(0, 0.5), unit, limit=30)
    assert run.region.center[0].item() == pytest.approx(2, abs=1e-4)
    assert run.region.center[1].item() == 0.5
