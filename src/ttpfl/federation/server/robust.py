"""Averages over clients: the mean, and averages that are robust to Byzantine clients. One row per client."""

import math
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.federation.settings import AVERAGES

_MAD_TO_DEVIATION = 1.4826  # of the normal distribution


@dataclass(frozen=True)
class Average:
    """An average over clients, with the same bits for any order of the clients.

    "mean"; "median" of each column; "trimmed": mean of each column without the fraction `trim` of clients at
    each end; or "krum": the row closest to its neighbours, assuming a fraction `trim` of Byzantine clients
    (Blanchard et al., 2017). `trim` is rounded down to whole clients; for krum rounded up.

    >>> rows = torch.tensor([[1.0], [2.0], [300.0]])
    >>> Average("median").of_rows(rows), Average("trimmed", trim=0.34).of_rows(rows)
    (tensor([2.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """

    kind: str = "mean"
    trim: float = 0.1

    def __post_init__(self) -> None:
        AVERAGES.check(FederationError, average=self.kind)

    @property
    def fewest(self) -> int:
        """Smallest number of rows that it can average."""
        return next(n for n in count(1) if self.kind != "krum" or neighbours(n, self.trim) >= 1)

    def of_rows(self, rows: Tensor) -> Tensor:
        """The average row, in double precision."""
        rows = rows.double()
        if self.kind == "mean":  # fsum rounds only once, so the order does not matter
            means = [math.fsum(column) / len(rows) for column in rows.T.tolist()]
            return torch.tensor(means, dtype=torch.float64)
        if self.kind == "krum":
            return _krum(rows, self.trim)
        cut = (len(rows) - 1) // 2 if self.kind == "median" else int(self.trim * len(rows))
        return rows.sort(dim=0).values[cut : len(rows) - cut].mean(dim=0)

    def of_numbers(self, numbers: Tensor) -> float:
        """The average of one number per client; krum takes their median."""
        average = Average("median") if self.kind == "krum" else self
        return float(average.of_rows(numbers[:, None])[0])

    def variance(self, rows: Tensor) -> Tensor:
        """The variance of each column over clients; robust unless the average is the mean."""
        rows = rows.double()
        if self.kind == "mean":
            return rows.var(dim=0)
        median = Average("median")
        return (_MAD_TO_DEVIATION * median.of_rows((rows - median.of_rows(rows)).abs())).square()

    def mean_square(self, rows: Tensor) -> Tensor:
        """The mean square of each column; robust unless the average is the mean."""
        if self.kind == "mean":
            return self.of_rows(rows.double().square())
        return (_MAD_TO_DEVIATION * Average("median").of_rows(rows.abs())).square()


def _krum(values: Tensor, byzantine: float) -> Tensor:
    """The row with the smallest sum of squared distances to its nearest rows."""
    clients, nearest = len(values), neighbours(len(values), byzantine)
    if nearest < 1:
        bad = clients - nearest - 2
        raise FederationError(
            f"krum needs at least {bad + 3} clients to tolerate {bad} Byzantine clients, but only {clients} "
            "returned a result: lower trim, or use average='median'"
        )
    distances = (values[:, None] - values[None, :]).square().sum(dim=2)
    # Column 0 of the sorted distances is each row's distance to itself. The values break ties, so that the
    # order of the clients does not matter.
    scores = distances.sort(dim=1).values[:, 1 : nearest + 1].sum(dim=1)
    best = min(range(clients), key=lambda row: (float(scores[row]), values[row].tolist()))
    return values[best]


def neighbours(clients: int, byzantine: float) -> int:
    """Number of neighbours that krum compares each client with."""
    return clients - math.ceil(byzantine * clients) - 2
