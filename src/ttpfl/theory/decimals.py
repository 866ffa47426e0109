"""Decimal arithmetic, for numbers of practically any size and any number of digits."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext

DIGITS = 50


@contextmanager
def decimals(digits: int = DIGITS) -> Iterator[None]:
    """Use the default decimal context with a number of digits, whatever the caller has set."""
    with localcontext(Context(prec=digits)):
        yield


def product(*factors: float) -> Decimal:
    """Multiply without overflow.

    >>> product(1e300, 1e300).adjusted()  # the power of ten
    600
    """
    return math.prod((Decimal(float(factor)) for factor in factors), start=Decimal(1))
