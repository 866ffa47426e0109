"""Confidence intervals of a mean, from Student's t distribution."""

import math
from statistics import NormalDist

LEVEL = 0.9


def half_width(variance: float, count: int) -> float:
    """Half the width of the 90 % interval of a mean of `count` numbers.

    >>> round(half_width(variance=4.0, count=16), 3)  # 1.753 standard errors
    0.877
    """
    return quantile(count - 1) * math.sqrt(variance / count)


def quantile(freedom: int) -> float:
    """The quantile (1 + LEVEL) / 2 of Student's t distribution; exact to three digits.

    >>> [round(quantile(freedom), 2) for freedom in (1, 2, 3, 10, 1000)]
    [6.31, 2.92, 2.35, 1.81, 1.65]
    """
    if freedom == 1:
        return math.tan(math.pi * LEVEL / 2)
    if freedom == 2:
        return LEVEL * math.sqrt(2 / (1 - LEVEL**2))
    # Cornish and Fisher's expansion around the normal distribution.
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
