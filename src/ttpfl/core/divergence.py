"""Detect rates that diverge because the learning rate is too large.

The limits are relative to the model without adaptation, so they hold for any scale of objective, loss and
weights. Useful adaptation stays far below them: useful rates are of the order of 1, and lower the loss.
"""

from torch import Tensor

from ttpfl.core.direction import Direction
from ttpfl.core.inputs import all_finite, first_bad
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import Rates
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Twin
from ttpfl.errors import RatesError

FARTHEST = 100.0
"""How far a module may move, relative to its own size or to 1, whichever is larger."""
LARGEST_LOSS = 1000.0
"""How far the loss may rise, relative to the loss without adaptation or to 1, whichever is larger."""


def check_slope(rates: Rates, values: Tensor, slope: Tensor, lr: float) -> None:
    """Raise a RatesError if the gradient of the loss at these values is not finite."""
    if all_finite(slope):
        return
    largest = int(values.abs().argmax())
    if not values[largest]:
        raise RatesError(
            f"the slope of the loss in the rate of {rates.names[first_bad(slope)]!r} is not finite before "
            "any rate has changed: check this part of the model, such as a normalisation layer with "
            "variances near zero"
        )
    raise RatesError(
        f"with a rate of {values[largest]:.3g} for {rates.names[largest]!r} the gradient of the loss is not "
        f"finite: lower lr (it is {lr:g})"
    )


def check_reach(twin: Twin, rates: Rates, direction: Direction, lr: float) -> None:
    """Raise a RatesError if a module moves so far along its direction that nothing is left of its values."""
    rate_of = rates.by_module()
    for spec in rates.modules:
        if (
            spec.name not in twin.specs
            or spec.name not in direction
            or not (rate := float(rate_of[spec.name]))
        ):
            continue
        to_rms = spec.size**-0.5  # from the norm to the root mean square
        length = to_rms * float(direction[spec.name].value.norm())
        start = to_rms * float(at_least_float32(twin.tensors[spec.name]).norm())
        # The statistic of a batch can be far away from the running one: there, the distance sets the scale.
        scale = max(1.0, start, length if spec.statistic else 0.0)
        if abs(rate) * length > FARTHEST * scale:
            raise RatesError(
                f"the rates diverged: {spec.name!r} has rate {rate:.2g}, which moves its values by "
                f"{abs(rate) * length:.2g} (root mean square) from {start:.2g}; lower lr (it is {lr:g})"
            )


def check_loss(plain: MetricSums, adapted: MetricSums, lr: float) -> None:
    """Raise a RatesError if adaptation makes the loss of a client vastly larger.

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
