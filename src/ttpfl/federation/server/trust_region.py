"""A trust-region quasi-Newton method: minimise a function of a few variables from its values and slopes.

There is no step size to choose. A `Region` is what is known of the function around the best point so far: its
curvature, and how far that knowledge can be trusted. `steps` proposes how far to go, and `judged` learns from
the result of a step, whether it lowered the function or not.

All functions are pure. Steps, slopes and curvatures are in *units*: `unit` is the scale of each coordinate.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

FIRST_DECREASE = 0.25
"""How much of the loss the slope may promise for the first step."""
ACCEPTED, POOR, GOOD = 0.05, 0.25, 0.7
"""Limits of the actual decrease in units of the predicted one: accept the step, shrink or grow the region."""
GROWTH = 2.5
DAMPING = 0.2
_FLATTEST = 1e-12


@dataclass(frozen=True)
class Region:
    """The best point so far, and a quadratic model of the function around it."""

    center: Tensor
    unit: Tensor
    """Scale of each coordinate; zero for coordinates that stay."""
    curvature: Tensor
    """Second derivatives: symmetric and positive definite."""
    radius: float
    """Longest step to trust."""
    first_radius: float
    """The radius at the beginning, which has the scale of a sensible step."""
    measured: bool = False
    """Whether the size of the curvature has been measured; before, only its shape is known."""

    @cached_property
    def axes(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of the curvature."""
        values, vectors = torch.linalg.eigh(self.curvature)
        return values.clamp(min=_FLATTEST), vectors


def begun(center: Tensor, loss: float, slope: Tensor, unit: Tensor, shape: Tensor) -> Region:
    """The region around the first point.

    Args:
        center: the first point.
        loss: value of the function.
        slope: its derivatives, in units.
        unit: scale of each coordinate.
        shape: the curvature up to a factor, such as the identity.
    """
    steepest = torch.linalg.solve(shape, -slope)
    promise, length = -float(slope @ steepest), float(steepest.norm())
    radius = FIRST_DECREASE * abs(loss) * length / promise if promise else 0.0
    size = length / radius if radius else 1.0  # the minimum of the model is then at the radius
    return Region(center, unit, shape * size, radius, radius)


def steps(region: Region, slopes: Tensor, radius: float | None = None) -> Tensor:
    """For every row of slopes, the step of at most `radius` that minimises the quadratic model.

    >>> curvature = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> steps(Region(torch.zeros(2), torch.ones(2), curvature, 9.0, 9.0), torch.tensor([[2.0, 4.0]]))
    tensor([[-1., -1.]])
    """
    radius = region.radius if radius is None else radius
    values, vectors = region.axes
    along = slopes @ vectors

    def shifted(shift: Tensor) -> Tensor:
        result: Tensor = -along / (values + shift[:, None])
        return result

    low, high = along.new_zeros(len(along)), along.norm(dim=1) / max(radius, _FLATTEST)
    inside = shifted(low).norm(dim=1) <= radius
    for _ in range(60):  # bisection: the step becomes shorter with the shift
        middle = (low + high) / 2
        too_long = shifted(middle).norm(dim=1) > radius
        low, high = torch.where(too_long, middle, low), torch.where(too_long, high, middle)
    shortest: Tensor = shifted(torch.where(inside, 0.0, high)) @ vectors.T
    return shortest


def decrease(region: Region, slopes: Tensor, steps: Tensor) -> Tensor:
    """For every row, by how much the quadratic model decreases along the step.

    >>> region = Region(torch.zeros(1), torch.ones(1), torch.tensor([[2.0]]), 1.0, 1.0)
    >>> decrease(region, torch.tensor([[2.0]]), torch.tensor([[-1.0]]))
    tensor([1.])
    """
    curved: Tensor = ((steps @ region.curvature) * steps).sum(1)
    return -(slopes * steps).sum(1) - curved / 2


def at(region: Region, step: Tensor) -> Tensor:
    """The point after a step from the center."""
    return region.center + region.unit * step


def judged(
    region: Region, step: Tensor, predicted: float, change: float, slope_change: Tensor
) -> tuple[Region, bool]:
    """The region after a step was tried, and whether the step was accepted.

    Args:
        region: the region before.
        step: the step.
        predicted: decrease of the function that the model predicted; zero if it was not asked.
        change: actual change of the function.
        slope_change: slope after the step minus slope at the center, in units.
    """
    ratio = -change / predicted if predicted else math.copysign(math.inf, -change)
    length = float(step.norm())
    if length and bool(slope_change.isfinite().all()):
        region = _with_curvature(region, step, slope_change)
    radius = region.radius
    if predicted and ratio < POOR:
        radius = min(radius, length * _shorter(predicted, change))
    elif ratio > GOOD and length > 0.8 * radius:
        radius *= GROWTH
    accepted = ratio > ACCEPTED
    center = at(region, step) if accepted else region.center
    return replace(region, center=center, radius=radius), accepted


def _shorter(predicted: float, change: float) -> float:
    """The part of a step at which a parabola through both values is lowest, within limits.

    The slope is inferred from the prediction, assuming that curvature cancels half of the linear decrease.
    """
    linear = 2 * predicted
    return min(0.5, max(0.1, predicted / (linear + change))) if linear + change > 0 else 0.5


def _with_curvature(region: Region, step: Tensor, slope_change: Tensor) -> Region:
    """Update the curvature by BFGS, damped so that it stays positive definite (Powell, 1978)."""
    curvature, measured = region.curvature, float(step @ slope_change)
    if not region.measured and measured > 0:
        curvature = curvature * (measured / float(step @ curvature @ step))
    along = curvature @ step
    expected = float(step @ along)
    if measured < DAMPING * expected:
        share = (1 - DAMPING) * expected / (expected - measured)
        slope_change = share * slope_change + (1 - share) * along
    curvature = curvature - torch.outer(along, along) / expected
    curvature = curvature + torch.outer(slope_change, slope_change) / float(step @ slope_change)
    return replace(region, curvature=(curvature + curvature.T) / 2, measured=True)
