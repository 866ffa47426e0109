"""The privacy account of rates: the private runs behind them, or why there is no bound.

It is plain data in the rates file. `ttpfl.federation.privacy.composition` computes epsilon from it.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

CHANGED = "the values were changed after they were learned, or set by hand"
UNPROTECTED = "learned without privacy"
NO_NOISE = "learned with no noise, or hardly any"
BEFORE_ACCOUNTS = "written before accounts existed: what its run began with is unknown"
LEAST_NOISE = 1e-6  # with less noise, epsilon would have 12 digits or more


@dataclass(frozen=True)
class PrivateRun:
    """Rounds of learning with Gaussian noise, as an accountant needs them."""

    privacy: str
    """Who adds the noise: the server ("central") or each client ("local")."""
    noise: float
    """Standard deviation in units of `clip`."""
    clip: float
    rounds: int
    participations: int
    """Rounds of the client that was drawn most often."""
    clients: int
    cohort: int
    """Clients per round, drawn from the seed and the number of the round."""
    seed: int
    sites: str = ""
    """Hash of the clients' names. Empty if they are not all known."""
    result: str = ""
    """Digest of the resulting rates, which tells runs apart."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, kinds = getattr(self, entry.name), (int, float) if entry.type is float else (entry.type,)
            if type(value) not in kinds:  # not isinstance: a bool is not a number here
                raise ValueError(f"{entry.name} of a private run is {value!r}")
        valid = (
            self.privacy in ("central", "local")
            and LEAST_NOISE <= self.noise < math.inf
            and 0 < self.clip < math.inf
            and 0 <= self.participations <= self.rounds
            and 1 <= self.cohort <= self.clients
            and self.seed >= 0
        )
        if not valid:
            raise ValueError(f"invalid private run: {self}")


@dataclass(frozen=True)
class Account:
    """The privacy spent to learn some rates.

    An empty account belongs to rates of zero, which depend on no data.

    >>> Account().covers(torch.zeros(3)), Account().covers(torch.ones(3))
    (True, False)
    """

    runs: tuple[PrivateRun, ...] = ()
    no_bound: str = ""
    """Why epsilon is infinite; empty if it is finite."""
    values: str = ""
    """Digest of the rates that the account belongs to."""

    def covers(self, values: Tensor) -> bool:
        """Whether the account belongs to exactly these values."""
        if self.no_bound or (not self.runs and not bool(values.any())):
            return True
        return self.values == digest(values)

    def of(self, values: Tensor) -> "Account":
        """Return this account if it covers the values, else one without a bound."""
        return self if self.covers(values) else Account(no_bound=CHANGED)

    def as_json(self) -> dict[str, Any]:
        """Plain data for the rates file."""
        return asdict(self)

    @classmethod
    def from_json(cls, card: Mapping[str, Any]) -> "Account":
        """Parse the account in a rates file; raise a ValueError or TypeError if it is invalid."""
        runs = tuple(PrivateRun(**row) for row in card["runs"])
        reason, values = card["no_bound"], card["values"]
        if not isinstance(reason, str) or not isinstance(values, str):
            raise ValueError("the privacy account is invalid")
        return cls(runs, reason, values)

    @classmethod
    def of_old_file(cls, learned: Mapping[str, Any], values: Tensor) -> "Account":
        """Account for a file written before accounts existed: no bound, unless nothing was learned.

        Such a file records the epsilon of its last run only, not of the rates that the run started from.

        >>> Account.of_old_file({"privacy": "none"}, torch.ones(2)).no_bound
        'learned without privacy'
        """
        if not learned and not bool(values.any()):
            return cls()
        recorded = learned.get("privacy") not in (None, "none") and "spent" in learned
        return cls(no_bound=BEFORE_ACCOUNTS if recorded else UNPROTECTED)


def together(accounts: Iterable[Account], values: Tensor) -> Account:
    """Account of values that were computed only from rates with these accounts.

    A run that several accounts share counts once.
    """
    accounts = list(accounts)
    for account in accounts:
        if account.no_bound:
            return Account(no_bound=account.no_bound)
    runs = dict.fromkeys(run for account in accounts for run in account.runs)
    return Account(tuple(runs), values=digest(values))


def digest(values: Tensor) -> str:
    """Hash rates as they are stored in a file."""
    return hashlib.sha256(values.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()).hexdigest()
