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

    rounds: int = choice(200, "total number of rounds", free=True)
    cohort: int | None = choice(None, "clients per round; all by default")
    seed: int = choice(0, "random seed")
    minimum: float = choice(
        0.5, "minimum fraction of a cohort that must reply; otherwise the round is abandoned"
    )
    patience: int | None = choice(
        None, "stop after this many rounds without a lower validation loss, and return the best round"
    )
    workers: int | None = choice(
        None, "worker processes; one per core by default, 0 runs in this process", free=True
    )
    checkpoint_every: int = choice(1, "checkpoint every n rounds", free=True)
    keep: int = choice(3, "number of checkpoints to keep", free=True)
    eval_every: int = choice(0, "evaluate on target clients every n rounds; 0 disables it")

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

    algorithm: str = choice("fedavg", "federated algorithm: fedavg, fedprox or qffl")
    mu: float = choice(0.01, "fedprox: weight of the proximal term")
    q: float = choice(1.0, "qffl: fairness exponent")
    epochs: int = choice(1, "local epochs per round")
    batch_size: int = choice(20, "batch size")
    lr: float = choice(0.1, "learning rate of the clients' SGD")
    momentum: float = choice(0.0, "momentum of the clients' SGD")
    weight_decay: float = choice(0.0, "weight decay of the clients' SGD")
    shuffle: bool = choice(True, "shuffle samples in every epoch")
    buffers: str = choice("average", "BatchNorm statistics: average them, or keep them local to each client")
    validate_every: int = choice(1, "validate every n rounds; 0 disables it")
    check: bool = choice(
        True, "warn if the model is no better than chance on the source clients' validation data", free=True
    )
    fast: bool = choice(True, "use CPU-friendly memory layout and shortcuts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffers not in ("average", "local"):
            raise FederationError(f"buffers is {self.buffers!r}: it must be 'average' or 'local'")
        if self.patience is not None and self.validate_every != 1:
            raise FederationError("patience looks at validation data in every round: set validate_every=1")


@dataclass(frozen=True)
class LearnSettings(RunSettings):
    """How rates are learned. The defaults are the paper's for CIFAR-10, but for the cohort (60 there)."""

    epochs: int = choice(1, "local epochs per round")
    batch_size: int = choice(20, "batch size; use the one expected at test time")
    lr: float = choice(0.1, "learning rate of the rates")
    mode: str = choice(
        "batch", "refine with each batch's own direction (batch) or with their running mean (online)"
    )
    only: str | None = choice(
        None,
        "which modules get rates: all, params (no statistics) or stats; default: as in --rates, else all",
    )
    average: str = choice(
        "mean", "aggregation of the clients' rates: mean (the paper), median, trimmed or krum"
    )
    trim: float = choice(
        0.1, "trimmed: fraction of clients cut at each end; krum: assumed fraction of Byzantine clients"
    )
    privacy: str = choice(
        "none", "differential privacy: none, central (the server adds noise) or local (each client does)"
    )
    clip: float = choice(0.1, "privacy: clipping norm of a client's change of the rates")
    noise: float = choice(1.0, "privacy: noise multiplier (standard deviation in units of clip)")
    delta: float = choice(1e-5, "privacy: delta of (epsilon, delta) differential privacy")
    check: bool = choice(
        True,
        "if the rates are worse than no adaptation on source clients, warn and return the best round "
        "instead of the last",
    )
    direction_cache: int = choice(
        2 * 2**30, "memory for cached directions in bytes, shared by all workers; 0 disables it", free=True
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
