"""When rates have diverged: steps so large that each makes up for the one before, and more.

The bounds are relative to the model without adaptation, so that they hold for any scale of objective, loss
and weights. No useful adaptation comes near them: rates that help are of the order of 1, and lower the loss.
"""

import torch
from torch import Tensor

from ttpfl.core.direction import Direction
from ttpfl.core.inputs import all_finite
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import Rates
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Twin
from ttpfl.errors import RatesError

FARTHEST = 100.0
"""How far a module may move, relative to its own size, or to 1 where it is smaller."""
LARGEST_LOSS = 1000.0
"""How far the loss may rise, relative to that without adaptation, or to 1 where it is smaller."""


def check_slope(rates: Rates, values: Tensor, slope: Tensor, lr: float) -> None:
    """Raise a RatesError if the loss, with rates of these values, has no finite slope to go down."""
    if all_finite(slope):
        return
    place = int(values.abs().argmax())
    if not values[place]:
        bad = rates.names[int((~torch.isfinite(slope)).nonzero()[0])]
        raise RatesError(
            f"the slope of the loss in the rate of {bad!r} is not finite before anything has moved: check "
            "the model there, such as a normalisation layer whose variances are almost zero"
        )
    raise RatesError(
        f"with a rate of {values[place]:.3g} for {rates.names[place]!r} the gradient of the loss is not "
        f"finite: rates must be finite, and the steps were too large; lower lr (it is {lr:g})"
    )


def check_reach(twin: Twin, rates: Rates, direction: Direction, lr: float) -> None:
    """Raise a RatesError if a module moves so far along its direction that nothing is left of what it was."""
    rate_of = rates.by_module()
    for spec in rates.modules:
        if spec.name not in direction or not (rate := float(rate_of[spec.name])):
            continue
        mean = spec.size**-0.5  # from the norm to the root mean square
        length = mean * float(direction[spec.name].value.norm())
        own = mean * float(at_least_float32(twin.tensors[spec.name]).norm())
        # A statistic goes towards that of a batch, which may well be far away: there, the way is the measure.
        size = max(1.0, own, length if spec.statistic else 0.0)
        if abs(rate) * length > FARTHEST * size:
            raise RatesError(
                f"the rates diverged: {spec.name!r} has rate {rate:.2g}, which moves its values by "
                f"{abs(rate) * length:.2g} (root mean square) from {own:.2g}; lower lr (it is {lr:g})"
            )


def check_loss(plain: MetricSums, adapted: MetricSums, lr: float) -> None:
    """Raise a RatesError if adaptation made the loss of a client incomparably larger.

    >>> check_loss(MetricSums(samples=20, loss=40.0), MetricSums(samples=20, loss=1e7), lr=0.1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.RatesError: the rates diverged: the loss is 5e+05 with adaptation and 2 without; lower ...
    """
    rise = adapted.mean_loss - plain.mean_loss
    if not rise <= LARGEST_LOSS * max(1.0, abs(plain.mean_loss)):
        raise RatesError(
            f"the rates diverged: the loss is {adapted.mean_loss:.3g} with adaptation and "
            f"{plain.mean_loss:.3g} without; lower lr (it is {lr:g})"
        )
