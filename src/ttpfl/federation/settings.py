"""What can be chosen about a run. Functions and command line take the same names."""

import sys
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar

from ttpfl.errors import FederationError
from ttpfl.federation.accountant import check_delta

T = TypeVar("T")


def choice(default: T, help: str, free: bool = False) -> T:
    """A field with its help. `free`: it has no influence on results, so a resumed run may change it."""
    return field(default=default, metadata={"help": help, "free": free})


@dataclass(frozen=True)
class RunSettings:
    """What training and rate learning have in common."""

    rounds: int = choice(200, "rounds in all", free=True)
    cohort: int | None = choice(None, "clients per round; all, if not given")
    seed: int = choice(0, "of cohorts and of everything random at clients")
    minimum: float = choice(0.5, "the part of a cohort that must answer well; below, the round is abandoned")
    patience: int | None = choice(
        None, "stop after so many rounds without a smaller loss on validation data, and go back to the best"
    )
    workers: int | None = choice(
        None, "processes; one per core, if not given; 0 computes in this one", free=True
    )
    checkpoint_every: int = choice(1, "rounds from one checkpoint to the next", free=True)
    keep: int = choice(3, "how many checkpoints are kept", free=True)
    eval_every: int = choice(0, "rounds from one evaluation on target clients to the next; 0 for none")

    def __post_init__(self) -> None:
        for name in ("rounds", "cohort", "patience", "checkpoint_every", "keep", "epochs", "batch_size"):
            self._whole(name, 1)
        for name in ("seed", "workers", "eval_every", "validate_every", "direction_cache"):
            self._whole(name, 0)
        for name in ("momentum", "weight_decay"):
            self._at_least(name, 0)
        if not 0 <= self.minimum <= 1:
            raise FederationError(f"minimum is {self.minimum}: it must lie between 0 and 1")
        if not getattr(self, "lr", 1) > 0:
            raise FederationError(f"lr is {getattr(self, 'lr', 1)}: it must be positive")

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name, None)
        if value is not None and not isinstance(value, Integral):
            raise FederationError(f"{name} is {value!r}: it must be a whole number")
        self._at_least(name, least)

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name, None)
        if value is not None and not value >= least:
            raise FederationError(f"{name} is {value}: it must be at least {least}")

    def decisive(self) -> dict[str, Any]:
        """The choices that results depend on."""
        free = {entry.name for entry in fields(self) if entry.metadata["free"]}
        return {name: value for name, value in asdict(self).items() if name not in free}


@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """How a global model is trained. The defaults are the paper's for the shallow CNN.

    >>> TrainSettings(lr=0)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: lr is 0: it must be positive
    """

    algorithm: str = choice("fedavg", "how clients and server compute: fedavg, fedprox or qffl")
    mu: float = choice(0.01, "for fedprox: how strongly clients are pulled back to the global model")
    q: float = choice(1.0, "for qffl: how much more a client with a larger loss counts")
    epochs: int = choice(1, "local epochs of a client in a round")
    batch_size: int = choice(20, "samples per step")
    lr: float = choice(0.1, "step size of the clients' SGD")
    momentum: float = choice(0.0, "of the clients' SGD")
    weight_decay: float = choice(0.0, "of the clients' SGD")
    shuffle: bool = choice(True, "give samples in a new random order in every epoch")
    buffers: str = choice(
        "average", "BatchNorm statistics of clients: average, or local (a client goes on with its own)"
    )
    validate_every: int = choice(1, "rounds from one look at the validation data to the next; 0 for none")
    check: bool = choice(
        True, "compare the result with chance on the source clients' validation data, and warn", free=True
    )
    fast: bool = choice(True, "use the memory layout and the short cuts that suit the CPU")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffers not in ("average", "local"):
            raise FederationError(f"buffers is {self.buffers!r}: it must be 'average' or 'local'")
        if self.patience is not None and self.validate_every != 1:
            raise FederationError("patience looks at validation data in every round: set validate_every=1")


@dataclass(frozen=True)
class LearnSettings(RunSettings):
    """How rates are learned. The defaults are the paper's for CIFAR-10, but for the cohort (60 there)."""

    epochs: int = choice(1, "turns over its data that a client takes in a round")
    batch_size: int = choice(20, "samples per batch: as many as there will be at test time")
    lr: float = choice(0.1, "step size of the refinement")
    mode: str = choice("batch", "refine with each batch's own direction (batch) or with their mean (online)")
    only: str | None = choice(
        None, "what gets rates: all, params (no statistics) or stats; as the rates to begin with, else all"
    )
    average: str = choice("mean", "of the clients' rates: mean (the paper), median, trimmed or krum")
    trim: float = choice(
        0.1, "trimmed: the part of clients left out at each end, for every rate; krum: the part that may lie"
    )
    privacy: str = choice(
        "none", "who adds noise to the rates: nobody (none), the server (central) or each client (local)"
    )
    clip: float = choice(0.1, "privacy: the largest change of the rates, in Euclidean norm, of one client")
    noise: float = choice(1.0, "privacy: standard deviation of the noise, in units of clip")
    delta: float = choice(1e-5, "privacy: the probability with which the stated epsilon may not hold")
    check: bool = choice(
        True,
        "compare the result with no adaptation on source clients; where it is worse, warn and go back to the "
        "best round (without: always the last round, as in the paper)",
    )
    direction_cache: int = choice(
        2 * 2**30, "bytes to keep directions in between rounds, all workers together; 0 for none", free=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("batch", "online"):
            raise FederationError(f"mode is {self.mode!r}: it must be 'batch' or 'online'")
        if self.only not in (None, "all", "params", "stats"):
            raise FederationError(f"only is {self.only!r}: it must be 'all', 'params' or 'stats'")
        if self.average not in ("mean", "median", "trimmed", "krum"):
            raise FederationError(
                f"average is {self.average!r}: it must be 'mean', 'median', 'trimmed' or 'krum'"
            )
        if not 0 <= self.trim < 0.5:
            raise FederationError(f"trim is {self.trim}: it must be at least 0 and less than 0.5")
        self._check_privacy()

    def _check_privacy(self) -> None:
        if self.privacy not in ("none", "central", "local"):
            raise FederationError(f"privacy is {self.privacy!r}: it must be 'none', 'central' or 'local'")
        if self.privacy == "none":
            return
        for name in ("clip", "noise"):
            value = getattr(self, name)
            real = isinstance(value, Real) and not isinstance(value, bool)
            if not real or not abs(value) <= sys.float_info.max:
                raise FederationError(f"{name} is {value!r:.60}: it must be a finite number")
        if not self.clip > 0:
            raise FederationError(f"clip is {self.clip}: it must be positive")
        self._at_least("noise", 0)
        check_delta(self.delta)
        if self.privacy == "central" and self.average != "mean":
            raise FederationError(
                f"with privacy='central' the noise is made for the mean, and one client can move the "
                f"{self.average} further: use average='mean', or privacy='local', which goes with any average"
            )
        if self.patience is not None:
            raise FederationError(
                "patience looks at the clients' losses, which have no noise: leave it out with privacy"
            )
