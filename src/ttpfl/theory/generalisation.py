"""How well errors at source clients foretell errors at new ones.

The error of a sample is one minus the predicted probability of its true class, so it lies between 0 and 1.
`epsilon` is the difference between the mean error that was seen at the source clients, after adaptation, and
the one to be expected at new clients. The bounds multiply numbers like 10^800 and 10^-900, so everything is
computed as a logarithm.
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
    """An upper bound of a probability, as its natural logarithm.

    >>> Bound(-math.log(4)).value
    0.25
    >>> Bound(1843.7).vacuous  # "at most 10^800" is true of every probability
    True
    """

    log: float

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing, because it is not below 1."""
        return self.log >= 0

    @property
    def value(self) -> float:
        """The bound itself; 1 if it is vacuous."""
        return math.exp(min(self.log, 0.0))


@dataclass(frozen=True)
class Ball:
    """All rates of norm at most `radius`, and how much they can change what the network says.

    Args:
        modules: d, the number of rates.
        lipschitz: L, of the network's predicted probabilities in its weights.
        direction: H, the largest norm of one module's direction, as `ttpfl.core.direction_norms` measures it.
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
        """Logarithm of how many rates stand for all: the nearest one's error is off by epsilon / 4 at most.

        The paper counts (12 L H R / epsilon)^d of them. A ball so small that this falls below 1 still needs
        one point, not a fraction of one.
        """
        reach = product(12, self.lipschitz, self.direction, self.radius) / product(epsilon)
        return self.modules * max(reach, Decimal(1)).ln()


def generalisation_bound(clients: int, batches: int, epsilon: float, ball: Ball | None = None) -> Bound:
    """Bound of the probability that errors at source clients mislead by `epsilon` or more.

    Args:
        clients: N, source clients. More of them bring the bound down to zero.
        batches: K, batches per client. More of them help a little, but not down to zero.
        epsilon: the difference of errors.
        ball: the bound then holds for all these rates at once (Theorem 5.1), so also for those that were
            learned on the same data; if None, for one choice of rates that was made before.

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
    """The smallest number of source clients for which the bound is not above `failure`, exactly.

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
            # All digits but the last few are right: do they settle which whole number is next?
            doubt = needed.scaleb(10 - digits)
            least, most = math.ceil(needed - doubt), math.ceil(needed + doubt)
        if least == most:
            return least
        digits *= 2


def epsilon_guaranteed(clients: int, batches: int, failure: float, ball: Ball | None = None) -> float:
    """The smallest epsilon for which the bound is not above `failure`; from 1 on, it says nothing.

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
        wanted = product(failure).ln()
        while low < (middle := math.sqrt(low) * math.sqrt(high)) < high:
            if _log_bound(clients, batches, middle, ball) <= wanted:
                high = middle
            else:
                low = middle
    return high


def _log_bound(clients: int, batches: int, epsilon: float, ball: Ball | None) -> Decimal:
    start, slope = _line(batches, epsilon, ball)
    return start - clients * slope


def _line(batches: int, epsilon: float, ball: Ball | None) -> tuple[Decimal, Decimal]:
    """The bound's logarithm falls in a straight line with the number of clients: its start, and its slope.

    For one choice of rates it is log 4 - 2 N K epsilon^2 / (sqrt(K) + 1)^2. For a ball, half of epsilon goes
    into the way to the nearest of its points and back, and the bound is added up over all points.
    """
    start, tolerance = Decimal(4).ln(), product(epsilon)
    if ball is not None:
        start, tolerance = start + ball.log_points(epsilon), tolerance / 2
    return start, 2 * batches * tolerance**2 / (Decimal(batches).sqrt() + 1) ** 2
