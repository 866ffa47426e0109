"""The server's step of the paper: the mean of the clients' rates."""

import math
from collections.abc import Sequence

import torch

from ttpfl.account import together
from ttpfl.errors import RatesError
from ttpfl.rates import Rates


def average_rates(rates: Sequence[Rates], weights: Sequence[float] | None = None) -> Rates:
    """The server's step: the mean of the clients' rates, the same bits in any order of the clients.

    Args:
        rates: one per client, all for the same network and granularity.
        weights: one non-negative number per client; all the same if None (the paper).

    Privacy accounts are added up; there is no bound if one of them has none.

    >>> model = torch.nn.Linear(3, 2)
    >>> a, b = Rates.zeros(model), Rates.zeros(model)
    >>> b.values += 1
    >>> average_rates([a, b]).values
    tensor([0.5000, 0.5000])
    """
    rates = list(rates)
    if not rates:
        raise RatesError("no rates to average: pass at least one")
    first = rates[0]
    for index, other in enumerate(rates):
        other.checked()
        for what in ("modules", "granularity", "mode"):
            if getattr(other, what) != getattr(first, what):
                raise RatesError(f"rates {index} and rates 0 have different {what}: average like with like")
    factors = [1.0] * len(rates) if weights is None else [float(weight) for weight in weights]
    if len(factors) != len(rates):
        raise RatesError(f"{len(factors)} weights for {len(rates)} rates: pass one each")
    total = math.fsum(factors)
    if not (math.isfinite(total) and total > 0 and min(factors) >= 0):
        raise RatesError(f"weights must be finite, not negative and not all zero, got {factors}")
    # fsum rounds once, whatever the order; the products are exact to double precision.
    columns = torch.stack([other.values.double() for other in rates], dim=1).tolist()
    means = [
        math.fsum(factor * value for factor, value in zip(factors, column, strict=True)) / total
        for column in columns
    ]
    values = torch.tensor(means, dtype=torch.float64).to(first.values.dtype)
    return first.with_values(values, account=together([other.current_account() for other in rates], values))
