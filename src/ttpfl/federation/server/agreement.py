"""How far to go, decided by leaving out clients: a step must help held-out clients.

The mean loss of the source clients falls along their mean slope. Whether it falls at a *new* client, too,
shows at clients that are left out: for every client, the step is computed from the slopes of the others, and
the quadratic model says what it does to the loss of the client left out. Among steps of several lengths,
along slopes that are shrunk more or less towards zero where clients differ (James and Stein, 1961), the best
on average is taken, and none if none helps. This costs no evaluation: the server has every client's slope.

All functions are pure. Slopes and steps are in units of the region, with one row per client.
"""

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.federation.server.robust import Average
from ttpfl.federation.server.trust_region import Region, decrease, steps

FACTORS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Numbers of standard errors below which a mean slope counts as noise; 0 keeps it as it is."""
LENGTHS = (1.0, 0.3, 0.1)
"""Lengths of the longest step, relative to the radius."""
POOLED = 4
"""Weight of the mean variance of all coordinates against that of one coordinate, as a number of clients."""


class Proposal(NamedTuple):
    """A step, and what it promises."""

    step: Tensor
    predicted: float
    """Decrease of the average loss."""
    expected: float
    """Decrease of the average loss at held-out clients."""


def proposed(region: Region, slopes: Tensor, average: Average) -> Proposal | None:
    """The step that helps held-out clients most; None if no step does."""
    clients = len(slopes)
    if clients < 2:
        return None
    mean, variance = average.of_rows(slopes), _pooled(average.variance(slopes), clients)
    others = _without_each(slopes, mean)
    best: Proposal | None = None
    for factor, length in product(FACTORS, LENGTHS):
        radius = length * region.radius
        each = steps(region, shrunk(others, variance / (clients - 1), factor), radius)
        expected = average.of_numbers(decrease(region, slopes, each))
        if expected > (0.0 if best is None else best.expected):
            step = steps(region, shrunk(mean, variance / clients, factor)[None], radius)
            predicted = float(decrease(region, mean[None], step))
            if predicted > 0:
                best = Proposal(step[0], predicted, expected)
    return best


def losses_left_out(region: Region, losses: Tensor, slopes: Tensor, average: Average) -> Tensor:
    """The loss of each client at the point that the search would have reached without this client.

    It is estimated from the model around the center (the jackknife).
    """
    mean = average.of_rows(slopes)
    away = steps(region, _without_each(slopes, mean)) - steps(region, mean[None])
    return losses - decrease(region, slopes, away)


def shrunk(slope: Tensor, variance: Tensor, factor: float) -> Tensor:
    """Shrink each coordinate of a slope towards zero; `variance` is the squared standard error.

    >>> shrunk(torch.tensor([4.0, 1.0]), torch.tensor([2.0, 2.0]), factor=1.0)
    tensor([3.5000, 0.0000])
    """
    smallest = torch.finfo(slope.dtype).tiny
    return slope * (1 - factor**2 * variance / slope.square().clamp(min=smallest)).clamp(min=0)


def _without_each(slopes: Tensor, mean: Tensor) -> Tensor:
    """For every client, the average slope of the others.

    Exact for the mean. In robust averages, the influence of a client is taken to be that on the mean.
    """
    return mean + (mean - slopes) / (len(slopes) - 1)


def _pooled(variance: Tensor, clients: int) -> Tensor:
    """Variances over few clients, moderated: one of them may be small by chance."""
    moving = variance > 0
    if not bool(moving.any()):
        return variance
    mean = variance[moving].mean()
    return torch.where(moving, (POOLED * mean + (clients - 1) * variance) / (POOLED + clients - 1), 0.0)
