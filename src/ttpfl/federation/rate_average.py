"""The server's step for rates: the paper's mean, or something that a few bad clients cannot move."""

import math
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.federation.settings import AVERAGES
from ttpfl.rates import Rates, average_rates


def combined(rates: Sequence[Rates], average: str = "mean", trim: float = 0.1) -> Rates:
    """One vector of rates from many, the same bits in any order of the clients.

    Args:
        rates: one per client.
        average: "mean", "median" (of each rate on its own), "trimmed": the mean of each rate without the
            part `trim` of clients at either end, or "krum": the rates of the one client that is closest to
            its neighbours, when the part `trim` of clients may lie (Blanchard et al., 2017).
        trim: see above; rounded down to whole clients, for krum rounded up.

    >>> from torch import nn
    >>> clients = [Rates.zeros(nn.Linear(1, 1)) for _ in range(3)]
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
