"""The generalisation bound: how well errors at source clients predict errors at new ones.

The error of a sample is one minus the predicted probability of its true class, between 0 and 1. `epsilon` is
the difference between the mean error after adaptation at source clients and the expected one at new clients.
The bounds multiply numbers like 10^800 and 10^-900, so everything is computed as a logarithm.
"""

import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from ttpfl.errors import TheoryError
from ttpfl.theory.decimals import DIGITS, decimals, product
from ttpfl.util.settings_kit import POSITIVE, PROBABILITY, integer, number

DIFFERENCE = number("above 0 and at most 1", lambda epsilon: 0 < epsilon <= 1)  # of two errors


class Bound(NamedTuple):
    """The natural logarithm of an upper bound on a probability.

    >>> Bound(-math.log(4)).value
    0.25
    >>> Bound(1843.7).vacuous  # "at most 10^800" is true of every probability
    True
    """

    log: float

    @property
    def vacuous(self) -> bool:
        """Whether the bound is not below 1, which says nothing."""
        return self.log >= 0

    @property
    def value(self) -> float:
        """The bound itself; 1 if it is vacuous."""
        return math.exp(min(self.log, 0.0))


@dataclass(frozen=True)
class Ball:
    """All rates of norm at most `radius`, and how much they can change the network's predictions.

    Args:
        modules: d, the number of rates.
        lipschitz: L, of the network's predicted probabilities in its weights.
        direction: H, the largest norm of one module's direction; see `ttpfl.core.direction_norms`.
        radius: R, the largest norm of the rates.

    >>> Ball(modules=102, lipschitz=1, direction=-2, radius=1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.TheoryError: direction must be a positive number, got -2
    """

    modules: int
    lipschitz: float
    direction: float
    radius: float

    def __post_init__(self) -> None:
        integer(1).check(TheoryError, modules=self.modules)
        POSITIVE.check(TheoryError, lipschitz=self.lipschitz, direction=self.direction, radius=self.radius)

    def log_points(self, epsilon: float) -> Decimal:
        """Logarithm of the number of points that cover the ball up to an error of epsilon / 4.

        The paper has (12 L H R / epsilon)^d. Even a ball for which this is below 1 needs one point.
        """
        reach = product(12, self.lipschitz, self.direction, self.radius) / product(epsilon)
        return self.modules * max(reach, Decimal(1)).ln()


def generalisation_bound(clients: int, batches: int, epsilon: float, ball: Ball | None = None) -> Bound:
    """Bound the probability that errors at source clients are off by `epsilon` or more.

    Args:
        clients: N, number of source clients. The bound goes to zero with more of them.
        batches: K, batches per client. More of them help a little, but the bound does not go to zero.
        epsilon: the difference of errors.
        ball: the bound then holds for all these rates at once (Theorem 5.1), including those learned on the
            same data; if None, it holds for rates that were chosen independently of the data.

    >>> round(generalisation_bound(clients=1000, batches=2, epsilon=0.1).value, 5)
    0.00418
    >>> ball = Ball(modules=102, lipschitz=1e6, direction=1, radius=1)
    >>> bound = generalisation_bound(clients=1000, batches=2, epsilon=0.1, ball=ball)
    >>> bound.vacuous, round(bound.log)
    (True, 1897)
    """
    integer(1).check(TheoryError, clients=clients, batches=batches)
    DIFFERENCE.check(TheoryError, epsilon=epsilon)
    with decimals():
        return Bound(float(_log_bound(clients, batches, epsilon, ball)))


def clients_needed(batches: int, epsilon: float, failure: float, ball: Ball | None = None) -> int:
    """Compute exactly the smallest number of source clients for which the bound is at most `failure`.

    >>> clients_needed(batches=2, epsilon=0.1, failure=0.05)
    639
    >>> clients_needed(2, 0.1, 0.05, Ball(modules=102, lipschitz=1e6, direction=1, radius=1))
    1108502
    >>> len(str(clients_needed(2, 1e-100, 0.05)))  # digits
    201
    """
    integer(1).check(TheoryError, batches=batches)
    DIFFERENCE.check(TheoryError, epsilon=epsilon)
    PROBABILITY.check(TheoryError, failure=failure)
    digits = DIGITS
    while True:
        with decimals(digits):
            start, slope = _line(batches, epsilon, ball)
            needed = (start - product(failure).ln()) / slope
            # All digits but the last few are correct. Use more if they do not determine the integer.
            error = needed.scaleb(10 - digits)
            least, most = math.ceil(needed - error), math.ceil(needed + error)
        if least == most:
            return least
        digits *= 2


def epsilon_guaranteed(clients: int, batches: int, failure: float, ball: Ball | None = None) -> float:
    """Compute the smallest epsilon for which the bound is at most `failure`; from 1 on, it says nothing.

    >>> round(epsilon_guaranteed(clients=639, batches=2, failure=0.05), 4)
    0.1
    >>> ball = Ball(modules=102, lipschitz=1e6, direction=1, radius=1)
    >>> round(epsilon_guaranteed(1000, 2, 0.05, ball), 2)
    3.01
    """
    integer(1).check(TheoryError, clients=clients, batches=batches)
    PROBABILITY.check(TheoryError, failure=failure)
    low, high = sys.float_info.min, sys.float_info.max
    with decimals():
        log_failure = product(failure).ln()
        while low < (middle := math.sqrt(low) * math.sqrt(high)) < high:
            if _log_bound(clients, batches, middle, ball) <= log_failure:
                high = middle
            else:
                low = middle
    return high


def _log_bound(clients: int, batches: int, epsilon: float, ball: Ball | None) -> Decimal:
    start, slope = _line(batches, epsilon, ball)
    return start - clients * slope


def _line(batches: int, epsilon: float, ball: Ball | None) -> tuple[Decimal, Decimal]:
    """Intercept and slope of the bound's logarithm, which is linear in the number of clients.

    For one choice of rates it is log 4 - 2 N K epsilon^2 / (sqrt(K) + 1)^2. For a ball, half of epsilon is
    for the distance to the nearest point and back, and the bound is summed over all points.
    """
    start, tolerance = Decimal(4).ln(), product(epsilon)
    if ball is not None:
        start, tolerance = start + ball.log_points(epsilon), tolerance / 2
    return start, 2 * batches * tolerance**2 / (Decimal(batches).sqrt() + 1) ** 2
