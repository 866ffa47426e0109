"""The server's step for rates: the paper's mean, or something that a few bad clients cannot move."""

import math
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from ttpfl.core.privacy_record import together
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError, RatesError
from ttpfl.federation.settings import AVERAGES


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


def combined(rates: Sequence[Rates], average: str = "mean", trim: float = 0.1) -> Rates:
    """One vector of rates from many, the same bits in any order of the clients.

    Args:
        rates: one per client.
        average: "mean", "median" (of each rate on its own), "trimmed": the mean of each rate without the
            part `trim` of clients at either end, or "krum": the rates of the one client that is closest to
            its neighbours, when the part `trim` of clients may lie (Blanchard et al., 2017).
        trim: see above; rounded down to whole clients, for krum rounded up.

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
    values = torch.stack([client.values.double() for client in rates])
    if average == "krum":
        return mean.with_values(_krum(values, trim).to(mean.values.dtype))
    ordered = values.sort(dim=0).values
    cut = (len(rates) - 1) // 2 if average == "median" else int(trim * len(rates))
    return mean.with_values(_middle(ordered, cut).to(mean.values.dtype))


def least_answers(average: str, trim: float) -> int:
    """With fewer answers, krum cannot choose, and the trimmed mean leaves nobody out.

    >>> least_answers("trimmed", 0.1), least_answers("krum", 0.1), least_answers("median", 0.1)
    (10, 4, 1)
    """
    if average == "krum":
        return next(clients for clients in count(3) if _neighbours(clients, trim) > 0)
    if average == "trimmed" and trim > 0:  # whoever says 0 wants nobody to be left out
        least = math.ceil(1 / trim)
        return least if int(trim * least) else least + 1  # a product may be rounded down
    return 1


def check_cohort(average: str, trim: float, cohort: int) -> None:
    """Before any work: whether so many clients are enough for the average."""
    least = least_answers(average, trim)
    if cohort >= least:
        return
    if average == "krum":
        raise FederationError(
            f"average='krum' with trim={trim:g} needs {least} clients in a round, and there are "
            f"{cohort}: use average='median'"
        )
    larger = math.ceil(1000 / cohort) / 1000
    remedy = f"set trim={larger:g}, or " if larger < 0.5 else ""
    raise FederationError(
        f"average is 'trimmed' with trim={trim:g}, which leaves out nobody of fewer than {least} clients, "
        f"and there are {cohort} in a round: {remedy}use average='median'"
    )


def _middle(ordered: Tensor, cut: int) -> Tensor:
    return ordered[cut : len(ordered) - cut].mean(dim=0)


def _krum(values: Tensor, liars: float) -> Tensor:
    """The row with the smallest sum of squared distances to its nearest rows."""
    clients, nearest = len(values), _neighbours(len(values), liars)
    if nearest < 1:
        bad = clients - nearest - 2
        raise FederationError(
            f"krum needs at least {bad + 3} clients where {bad} may lie, but {clients} answered: "
            "lower trim, or use average='median'"
        )
    distances = (values[:, None] - values[None, :]).square().sum(dim=2)
    # The first of the ordered distances is that to itself. Among equals the values decide, and not the
    # order of the clients.
    scores = distances.sort(dim=1).values[:, 1 : nearest + 1].sum(dim=1)
    best = min(range(clients), key=lambda row: (float(scores[row]), values[row].tolist()))
    return values[best]


def _neighbours(clients: int, liars: float) -> int:
    """How many of its neighbours a client is compared with by krum."""
    return clients - math.ceil(liars * clients) - 2
