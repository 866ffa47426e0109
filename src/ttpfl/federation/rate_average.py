"""The server's step for rates: the paper's mean, or something that a few bad clients cannot move."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.rates import Rates, average_rates


def combined(rates: Sequence[Rates], average: str = "mean", trim: float = 0.1) -> Rates:
    """One vector of rates from many, the same bits in any order of the clients.

    Args:
        rates: one per client.
        average: "mean", "median" (of each rate on its own), or "trimmed": the mean of each rate without the
            part `trim` of clients at either end.
        trim: see above; rounded down to whole clients.

    >>> from torch import nn
    >>> clients = [Rates.zeros(nn.Linear(1, 1)) for _ in range(3)]
    >>> for client, value in zip(clients, (1.0, 2.0, 300.0)):
    ...     client.values += value
    >>> combined(clients, "median").values, combined(clients, "trimmed", trim=0.34).values
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    mean = average_rates(rates)
    if average == "mean":
        return mean
    ordered = torch.stack([client.values.double() for client in rates]).sort(dim=0).values
    cut = {"median": (len(rates) - 1) // 2, "trimmed": int(trim * len(rates))}.get(average)
    if cut is None:
        raise FederationError(f"average is {average!r}: it must be 'mean', 'median' or 'trimmed'")
    return mean.with_values(_middle(ordered, cut).to(mean.values.dtype))


def _middle(ordered: Tensor, cut: int) -> Tensor:
    return ordered[cut : len(ordered) - cut].mean(dim=0)
