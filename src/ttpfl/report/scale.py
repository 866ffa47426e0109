"""Scales, which map values to positions between 0 and 1."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

MAX_STEPS = 6


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale.

    >>> Scale(0, 20)(5), Scale(1, 16, log=True)(4)
    (0.25, 0.5)
    """

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round numbers on the scale.

        >>> Scale(0, 1).ticks(), Scale(1, 60, log=True).ticks()
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0])
        """
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        else:
            step = _step(self.high - self.low)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            ticks = [round(n * step, 12) for n in range(first, last + 1)]
        slack = 1e-9 * (self.high - self.low)
        return [tick for tick in ticks if self.low - slack <= tick <= self.high + slack]


def covering(values: Iterable[float], *, also: Iterable[float] = (), log: bool = False) -> Scale:
    """A scale that contains all finite values. A linear one starts and ends at round numbers.

    >>> covering([0.512, 0.745])
    Scale(low=0.5, high=0.75, log=False)
    >>> covering([3.0]), covering([0.3])  # a loss is not negative
    (Scale(low=2.4, high=3.6, log=False), Scale(low=0.0, high=0.8, log=False))
    """
    finite = [value for value in (*values, *also) if math.isfinite(value) and (value > 0 or not log)]
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    if log:
        return Scale(low / 1.15, high * 1.15, log=True)
    if high - low < 1e-9 * max(1, abs(low), abs(high)):  # practically a single value
        low, high = max(low - 0.5, 0.0) if low > 0 else low - 0.5, high + 0.5
    step = _step(high - low)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(round(low, 12), round(high, 12))


def _step(length: float) -> float:
    """The smallest of 1, 2, 5, 10, … times a power of ten that gives at most `MAX_STEPS` steps."""
    smallest = length / MAX_STEPS
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= smallest * (1 - 1e-9))
