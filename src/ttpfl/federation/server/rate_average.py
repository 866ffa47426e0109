"""Aggregation of the clients' rates: the paper's mean, or an average robust to Byzantine clients."""

import math
from collections.abc import Sequence
from itertools import count

import torch

from ttpfl.core.privacy_record import together
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError, RatesError
from ttpfl.federation.server.robust import Average, neighbours
from ttpfl.federation.settings import AVERAGES


def average_rates(rates: Sequence[Rates], weights: Sequence[float] | None = None) -> Rates:
    """The mean of the clients' rates, with the same bits for any order of the clients.

    Args:
        rates: One per client, all for the same network and granularity.
        weights: One non-negative number per client; equal weights if None (the paper).

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
        for name in ("modules", "granularity", "mode"):
            if getattr(other, name) != getattr(first, name):
                raise RatesError(f"rates {index} and rates 0 have different {name}: they cannot be averaged")
    factors = [1.0] * len(rates) if weights is None else [float(weight) for weight in weights]
    if len(factors) != len(rates):
        raise RatesError(f"{len(factors)} weights for {len(rates)} rates: pass one weight for each")
    total = math.fsum(factors)
    if not (math.isfinite(total) and total > 0 and min(factors) >= 0):
        raise RatesError(f"weights must be finite, not negative and not all zero, got {factors}")
    # fsum rounds only once, so the order does not matter; the products are exact in double precision.
    columns = torch.stack([other.values.double() for other in rates], dim=1).tolist()
    means = [
        math.fsum(factor * value for factor, value in zip(factors, column, strict=True)) / total
        for column in columns
    ]
    values = torch.tensor(means, dtype=torch.float64).to(first.values.dtype)
    account = together([other.current_account() for other in rates], values)
    return first.with_values(values, account=account, guard=None)


def combined(rates: Sequence[Rates], average: str = "mean", trim: float = 0.1) -> Rates:
    """Aggregate rates, with the same bits for any order of the clients.

    Args:
        rates: One per client.
        average: "mean", "median", "trimmed" or "krum"; see `Average`.
        trim: See `Average`.

    >>> clients = [Rates.zeros(torch.nn.Linear(1, 1)) for _ in range(3)]
    >>> for client, value in zip(clients, (1.0, 2.0, 300.0)):
    ...     client.values += value
    >>> combined(clients, "median").values, combined(clients, "trimmed", trim=0.34).values
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    AVERAGES.check(FederationError, average=average)
    mean = average_rates(rates)
    if average == "mean":
        return mean
    values = Average(average, trim).of_rows(torch.stack([client.values for client in rates]))
    return mean.with_values(values.to(mean.values.dtype))


def min_results(average: str, trim: float) -> int:
    """Number of results below which krum cannot choose, and the trimmed mean leaves out no client.

    >>> min_results("trimmed", 0.1), min_results("krum", 0.1), min_results("median", 0.1)
    (10, 4, 1)
    """
    if average == "krum":
        return next(clients for clients in count(3) if neighbours(clients, trim) > 0)
    if average == "trimmed" and trim > 0:  # trim=0 explicitly asks for the plain mean
        least = math.ceil(1 / trim)
        return least if int(trim * least) else least + 1  # a product may be rounded down
    return 1


def check_cohort(average: str, trim: float, cohort: int) -> None:
    """Raise an error if the cohort is too small for the average."""
    least = min_results(average, trim)
    if cohort >= least:
        return
    if average == "krum":
        raise FederationError(
            f"average='krum' with trim={trim:g} needs at least {least} clients per round, but there are "
            f"{cohort}: use average='median'"
        )
    larger = math.ceil(1000 / cohort) / 1000
    remedy = f"set trim={larger:g}, or " if larger < 0.5 else ""
    raise FederationError(
        f"average='trimmed' with trim={trim:g} has no effect with fewer than {least} clients per round, and "
        f"there are {cohort}: {remedy}use average='median'"
    )
