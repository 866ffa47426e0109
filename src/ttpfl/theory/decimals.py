"""Numbers of any size, and which of them make sense.

Decimal arithmetic has no largest number, in practice, and as many digits as an answer needs.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext

from ttpfl.errors import TheoryError

DIGITS = 50


@contextmanager
def decimals(digits: int = DIGITS) -> Iterator[None]:
    """Decimal arithmetic as it is by default but for its digits, whatever the caller has set."""
    with localcontext(Context(prec=digits)):
        yield


def product(*factors: float) -> Decimal:
    """Without overflow.

    >>> product(1e300, 1e300).adjusted()  # the power of ten
    600
    """
    return math.prod((Decimal(float(factor)) for factor in factors), start=Decimal(1))


def check_counts(**counts: int) -> None:
    """Raise an error that names the first count that is none."""
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise TheoryError(f"{name} is {count!r}: it must be a whole number, at least 1")


def check_positive(**numbers: float) -> None:
    """Raise an error that names the first number that is not positive."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise TheoryError(f"{name} is {number}: it must be a positive number")


def check_not_negative(**numbers: float) -> None:
    """Raise an error that names the first number that is negative."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number >= 0):
            raise TheoryError(f"{name} is {number}: it must be a positive number or 0")
