"""Settings of a run. Python and the command line use the same names."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar, cast

from ttpfl.core.levels import BUDGET, level_within
from ttpfl.errors import FederationError
from ttpfl.federation.privacy.accountant import check_delta
from ttpfl.util.settings_kit import (
    BOOLEAN,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    FilledFloat,
    FilledIn,
    FilledInt,
    FilledText,
    Rule,
    check_fields,
    integer,
    number,
    one_of,
)

T = TypeVar("T")

AVERAGES = one_of("mean", "median", "trimmed", "krum")
TRUST_REGION, SGD = "trust-region", "sgd"
OPTIMIZERS = one_of(TRUST_REGION, SGD)

RENAMED = {"epochs": "local_epochs", "minimum": "min_reply_fraction"}
"""Names of settings in earlier versions, which are still accepted, and their new names."""


def with_new_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings written by an earlier version, under the names of this version.

    >>> with_new_names({"rounds": 3, "epochs": 2})
    {'rounds': 3, 'local_epochs': 2}
    """
    for old in RENAMED.keys() & settings.keys():
        if RENAMED[old] in settings:
            raise FederationError(f"{old} is the old name of {RENAMED[old]}: use only {RENAMED[old]}")
    return {RENAMED.get(name, name): value for name, value in settings.items()}


def takes_old_names(kind: type[T]) -> type[T]:
    """Let a settings class accept old names as keywords, with a DeprecationWarning."""
    init: Callable[..., None] = kind.__init__

    @wraps(init)
    def renaming(self: T, *args: Any, **settings: Any) -> None:
        for old in RENAMED.keys() & settings.keys():
            warnings.warn(f"{old}= is now {RENAMED[old]}=", DeprecationWarning, stacklevel=2)
        init(self, *args, **with_new_names(settings))

    kind.__init__ = renaming  # type: ignore[assignment]
    return kind


def choice(default: T, help: str, limit: Rule | None = None, free: bool = False) -> T:
    """A field with its help and rule. `free` fields do not affect results: a resumed run may change them."""
    return field(default=default, metadata={"help": help, "limit": limit, "free": free})


@dataclass(frozen=True)
class RunSettings:
    """Settings that training and rate learning share."""

    rounds: int = choice(200, "total number of rounds", integer(1), free=True)
    cohort: int | None = choice(None, "clients per round; all by default", integer(1))
    seed: int = choice(0, "random seed", integer(0))
    min_reply_fraction: float = choice(
        0.5, "minimum fraction of a cohort that must reply; otherwise the round is abandoned", FRACTION
    )
    patience: int | None = choice(
        None, "stop after n rounds without a lower validation loss, and return the best round", integer(1)
    )
    workers: int | None = choice(
        None, "worker processes; one per core by default, 0 for none", integer(0), free=True
    )
    checkpoint_every: int = choice(1, "checkpoint every n rounds", integer(1), free=True)
    keep: int = choice(3, "number of checkpoints to keep", integer(1), free=True)
    eval_every: int = choice(0, "evaluate on target clients every n rounds; 0 disables it", integer(0))

    def __post_init__(self) -> None:
        check_fields(self, FederationError)

    def __getattr__(self, name: str) -> Any:
        if name not in RENAMED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is now {RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return getattr(self, RENAMED[name])

    def defaults(self) -> "RunSettings":
        """The defaults of all settings."""
        return type(self)()

    def decisive(self) -> dict[str, Any]:
        """The settings that results depend on."""
        free = {entry.name for entry in fields(self) if entry.metadata["free"]}
        return {name: value for name, value in asdict(self).items() if name not in free}


@takes_old_names
@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """Settings of training a global model. The defaults are the paper's for the shallow CNN.

    >>> TrainSettings(lr=0)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: lr must be a positive number, got 0
    """

    algorithm: str = choice("fedavg", "federated algorithm: fedavg, fedprox or qffl")
    mu: float = choice(0.01, "weight of the proximal term of FedProx")
    q: float = choice(1.0, "fairness exponent of q-FFL")
    local_epochs: int = choice(1, "local epochs per round", integer(1))
    batch_size: int = choice(20, "batch size", integer(1))
    lr: float = choice(0.1, "learning rate of the clients' SGD", POSITIVE)
    momentum: float = choice(0.0, "momentum of the clients' SGD", NOT_NEGATIVE)
    weight_decay: float = choice(0.0, "weight decay of the clients' SGD", NOT_NEGATIVE)
    shuffle: bool = choice(True, "shuffle samples in every epoch")
    buffers: str = choice(
        "average", "BatchNorm statistics: average them, or keep them local", one_of("average", "local")
    )
    validate_every: int = choice(1, "validate every n rounds; 0 disables it", integer(0))
    check: bool = choice(
        True, "warn if the model is no better than chance on the source clients' validation data", free=True
    )
    fast: bool = choice(True, "use CPU-friendly memory layout and shortcuts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience is not None and self.validate_every != 1:
            raise FederationError("patience needs the validation loss of every round: set validate_every=1")


@takes_old_names
@dataclass(frozen=True)
class LearnSettings(RunSettings):
    """Settings of rate learning. The defaults need no tuning.

    The trust-region method has no learning rate, and stops on its own. SGD is the paper's algorithm; its
    defaults are the paper's for CIFAR-10, except the cohort (60). It is chosen if any of its own settings
    (`lr`, `local_epochs`, `patience`) or `privacy` is set, unless `optimizer` is given.

    >>> LearnSettings().optimizer, LearnSettings(lr=0.1).optimizer
    ('trust-region', 'sgd')
    >>> LearnSettings().rounds, LearnSettings(optimizer="sgd").rounds
    (25, 200)
    >>> from dataclasses import replace
    >>> replace(LearnSettings(), optimizer="sgd").rounds, replace(LearnSettings(rounds=9), lr=0.5).rounds
    (200, 9)
    """

    rounds: int = choice(
        cast(int, None), "maximum number of rounds; 25 by default, 200 with sgd", integer(1), free=True
    )
    optimizer: str = choice(
        cast(str, None),
        "trust-region (no tuning) or sgd (the paper); default: sgd if one of its settings is given",
        OPTIMIZERS,
    )
    local_epochs: int = choice(1, "local epochs per round of sgd", integer(1))
    batch_size: int = choice(20, "batch size; use the one expected at test time", integer(1))
    lr: float | None = choice(None, "learning rate of sgd; 0.1 by default", POSITIVE)
    mode: str = choice(
        "batch",
        "use each batch's direction (batch) or their running mean (online)",
        one_of("batch", "online"),
    )
    only: str | None = choice(
        None,
        "modules with rates: all, params, stats, prior, head or forward; default: as in --rates, else all",
        one_of("all", "params", "stats", "prior", "head", "forward"),
    )
    budget: float | None = choice(None, "limit the cost of a batch: 1.1, 2 or 4 forward passes", BUDGET)
    prior: bool = choice(False, "learn to follow each client's class frequencies; not with sgd", BOOLEAN)
    average: str = choice(
        "mean", "aggregation over clients: mean (the paper), median, trimmed or krum", AVERAGES
    )
    trim: float = choice(
        0.1,
        "trimmed: fraction of clients cut at each end; krum: assumed fraction of Byzantine clients",
        number("of at least 0 and below 0.5", lambda trim: 0 <= trim < 0.5),
    )
    privacy: str = choice(
        "none",
        "differential privacy: none, central (the server adds noise) or local (each client does); needs sgd",
        one_of("none", "central", "local"),
    )
    clip: float = choice(0.1, "privacy: clipping norm of a client's change of the rates")
    noise: float = choice(1.0, "privacy: noise multiplier (standard deviation in units of clip)")
    delta: float = choice(1e-5, "privacy: delta of (epsilon, delta) differential privacy")
    check: bool = choice(
        True,
        "return only rates that are shown to help; with sgd, warn if they are worse than no adaptation",
    )
    guard: bool = choice(False, "learn a guard against harm, in two more rounds", BOOLEAN)
    direction_cache: int = choice(
        2**31, "bytes for cached directions, shared by all workers; 0 disables it", integer(0), free=True
    )

    def __post_init__(self) -> None:
        for name in ("optimizer", "rounds", "lr"):
            if isinstance(getattr(self, name), FilledIn):
                object.__setattr__(self, name, None)
        super().__post_init__()
        self._complete()
        if self.privacy != "none":
            self._check_privacy()

    @property
    def searches(self) -> bool:
        """Whether the server searches with the clients' slopes, instead of averaging their rates."""
        return self.optimizer == TRUST_REGION

    @property
    def selection(self) -> str:
        """The modules that get rates: those of `only`, or the best that `budget` allows."""
        level = self.only if self.budget is None else level_within(self.budget)
        return level or "all"

    @property
    def learns_prior(self) -> bool:
        """Whether the label prior gets a rate: if `prior` is set, or if `only` asks for nothing else.

        >>> [LearnSettings(only="prior", optimizer=how).learns_prior for how in ("trust-region", "sgd")]
        [True, False]
        """
        return self.prior or (self.only == "prior" and self.searches)

    def defaults(self) -> "LearnSettings":
        """The defaults of the chosen optimizer."""
        return type(self)(optimizer=str(self.optimizer))

    def _complete(self) -> None:
        """Choose the optimizer, and fill in its defaults."""
        own = {"lr": self.lr is not None, "local_epochs": self.local_epochs != 1}
        own |= {"patience": self.patience is not None}
        given = [name for name, is_given in own.items() if is_given]
        private = self.privacy != "none"
        if self.optimizer == TRUST_REGION and private:
            raise FederationError(
                f"privacy={self.privacy!r} needs optimizer='sgd': the trust-region method compares the "
                "clients' losses and slopes from round to round, which would all need noise"
            )
        if self.optimizer == TRUST_REGION and given:
            raise FederationError(
                f"{given[0]}={getattr(self, given[0])!r} has no effect with optimizer={TRUST_REGION!r}: "
                "leave it out, or use optimizer='sgd'"
            )
        chosen = self.optimizer or (SGD if given or private else TRUST_REGION)
        rounds, lr = (200, FilledFloat(0.1)) if chosen == SGD else (25, None)
        if self.budget is not None and self.only is not None:
            raise FederationError(
                f"budget={self.budget:g} and only={self.only!r} both choose the modules: leave out either"
            )
        possible = chosen != SGD and self.selection not in ("params", "stats")
        if self.prior and not possible:
            reason = f"optimizer={chosen!r}" if chosen == SGD else f"only={self.only!r}"
            raise FederationError(
                f"prior=True is not possible with {reason}: use prior=False, or the trust-region method with "
                "all modules"
            )
        completed = {
            "optimizer": FilledText(chosen),
            "rounds": FilledInt(rounds),
            "lr": lr,
        }
        for name, value in completed.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        if self.guard and (self.privacy != "none" or self.average != "mean"):
            raise FederationError(
                f"guard=True is not possible with privacy={self.privacy!r}, average={self.average!r}: a "
                "guard is learned from sums over all clients without noise; use guard=False"
            )

    def _check_privacy(self) -> None:
        POSITIVE.check(FederationError, clip=self.clip)
        NOT_NEGATIVE.check(FederationError, noise=self.noise)
        check_delta(self.delta)
        if self.privacy == "central" and self.average != "mean":
            raise FederationError(
                f"privacy='central' adds noise for the mean, but one client can move the {self.average} "
                "further: use average='mean', or privacy='local', which works with any average"
            )
        if self.patience is not None:
            raise FederationError(
                "patience uses the clients' losses, which have no noise: do not combine it with privacy"
            )
