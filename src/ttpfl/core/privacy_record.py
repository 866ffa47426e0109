"""The privacy account of rates: the private runs that they came from, or why there is no bound.

It is plain data, kept in the rates file. `ttpfl.federation.privacy.composition` turns it into an epsilon.
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
LEAST_NOISE = 1e-6  # below, epsilon would have 12 digits or more


@dataclass(frozen=True)
class PrivateRun:
    """Rounds of learning with Gaussian noise: all that an accountant needs to know."""

    privacy: str
    """Who added the noise: the server (central) or each client (local)."""
    noise: float
    """Standard deviation in units of `clip`."""
    clip: float
    rounds: int
    participations: int
    """Rounds of the client that was drawn most often."""
    clients: int
    cohort: int
    """Clients in a round. Which ones follows from the seed and the round's number."""
    seed: int
    sites: str = ""
    """Hash of the clients' names: the same for the same clients. Empty if they are not all known."""
    result: str = ""
    """Digest of the rates that came of it, so that one run is not taken for another."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, kinds = getattr(self, entry.name), (int, float) if entry.type is float else (entry.type,)
            if type(value) not in kinds:  # a bool is no number
                raise ValueError(f"{entry.name} of a private run is {value!r}")
        sound = (
            self.privacy in ("central", "local")
            and LEAST_NOISE <= self.noise < math.inf
            and 0 < self.clip < math.inf
            and 0 <= self.participations <= self.rounds
            and 1 <= self.cohort <= self.clients
            and self.seed >= 0
        )
        if not sound:
            raise ValueError(f"a private run makes no sense: {self}")


@dataclass(frozen=True)
class Account:
    """What the sites behind some rates have given away.

    An empty account is that of zeros, which nobody's data had a part in.

    >>> Account().covers(torch.zeros(3)), Account().covers(torch.ones(3))
    (True, False)
    """

    runs: tuple[PrivateRun, ...] = ()
    no_bound: str = ""
    """Why epsilon is infinite; empty if it is not."""
    values: str = ""
    """Digest of the rates that this is the account of."""

    def covers(self, values: Tensor) -> bool:
        """Whether this is the account of these values, and not of others that they were made from."""
        if self.no_bound or (not self.runs and not bool(values.any())):
            return True
        return self.values == digest(values)

    def of(self, values: Tensor) -> "Account":
        """The account itself if it covers the values, else one without a bound."""
        return self if self.covers(values) else Account(no_bound=CHANGED)

    def as_json(self) -> dict[str, Any]:
        """For the rates file."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Account":
        """From the rates file; a ValueError or TypeError if it makes no sense."""
        runs = tuple(PrivateRun(**row) for row in said["runs"])
        reason, values = said["no_bound"], said["values"]
        if not isinstance(reason, str) or not isinstance(values, str):
            raise ValueError("the privacy account makes no sense")
        return cls(runs, reason, values)

    @classmethod
    def of_old_file(cls, learned: Mapping[str, Any], values: Tensor) -> "Account":
        """For a file from before there were accounts: no bound, unless nothing was ever learned.

        Such a file recorded the epsilon of its last run alone, not what that run began with.

        >>> Account.of_old_file({"privacy": "none"}, torch.ones(2)).no_bound
        'learned without privacy'
        """
        if not learned and not bool(values.any()):
            return cls()
        recorded = learned.get("privacy") not in (None, "none") and "spent" in learned
        return cls(no_bound=BEFORE_ACCOUNTS if recorded else UNPROTECTED)


def together(accounts: Iterable[Account], values: Tensor) -> Account:
    """The account of values that were computed from rates with these accounts, and from nothing else.

    A run that several of them came from is one run, and counts once.
    """
    accounts = list(accounts)
    reason = next((account.no_bound for account in accounts if account.no_bound), "")
    if reason:
        return Account(no_bound=reason)
    runs = dict.fromkeys(run for account in accounts for run in account.runs)
    return Account(tuple(runs), values=digest(values))


def digest(values: Tensor) -> str:
    """A hash of rates, as a file holds them."""
    return hashlib.sha256(values.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()).hexdigest()
