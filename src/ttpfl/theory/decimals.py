"""Numbers of any size.

Decimal arithmetic has no largest number, in practice, and as many digits as an answer needs.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext

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
