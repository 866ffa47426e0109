"""What a site's operator allows the server to request. Everything else is refused with a reason."""

import json
import logging
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ttpfl.errors import FederationError, RefusedError
from ttpfl.federation.privacy.accountant import SENSITIVITY, epsilon_of_mu
from ttpfl.federation.settings import LearnSettings, RunSettings, TrainSettings, with_new_names
from ttpfl.flower.messages import ModelCard, Task
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.locks import exclusive
from ttpfl.util.reading import read_json
from ttpfl.util.settings_kit import POSITIVE, PROBABILITY, as_table, check_known, integer

MOST_COUNTS = 1000.0
"""Limit of the counts of a label prior, as in `federation.server.credibility`."""

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("ttpfl")

FORMAT, VERSION = "ttpfl.privacy", 2
_ENDLESS = 1e12  # for mu squared, where epsilon would have 12 digits: it counts as infinite

NETWORKS = ("shallow_cnn", "resnet18", "resnet50", "signal_cnn", "beat_cnn", "mlp", "sequence_transformer")
"""Networks that come with ttpfl; listed here, since `ttpfl.models` imports torch."""
SETTINGS: dict[str, type[LearnSettings | TrainSettings]] = {
    "learn": LearnSettings,
    "guard": LearnSettings,
    "train": TrainSettings,
}


@dataclass(frozen=True)
class Policy:
    """Limits of a site: the table `[policy]` of `site.toml`.

    >>> Policy(kinds=["learn"]).check(Task("train", 0, 0, 3, {}, "", "", {}))
    Traceback (most recent call last):
        ...
    ttpfl.errors.RefusedError: tasks of the kind 'train' are not allowed here
    """

    kinds: list[str] = field(default_factory=lambda: ["learn", "train"])
    """Allowed tasks: learn (only rates leave the site), guard (largest norms of directions, and second
    moments of predictions), train (a whole model)."""
    models: list[str] = field(default_factory=lambda: list(NETWORKS))
    """Allowed names for `ttpfl.models.build`. A name of the form package.module:function is imported."""
    largest_model: int = 1_000_000_000
    """Bytes."""
    most_models: int = 10
    """Number of models kept here; a new one replaces the least recently used."""
    largest_rate: float = 1000.0
    """Limit of the rates that come with a task."""
    local_epochs: int = 10
    rounds: int = 100_000
    smallest_batch: int = 2
    fewest_samples: int = 10
    """With fewer samples the site refuses: sums over few people reveal much about each. This applies to the
    data that a task uses and, if training evaluates on validation data, to that as well."""
    local_noise: float | None = None
    """If set, learning requires privacy = "local" with at least this noise."""
    epsilon: float | None = None
    """If set, the privacy budget of all replies with local noise together, at `delta`."""
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for kind in self.kinds:
            check_known("task", kind, SETTINGS, FederationError, "in policy.kinds")
        integer(1).check(FederationError, **{"policy.most_models": self.most_models})
        PROBABILITY.check(FederationError, **{"policy.delta": self.delta})
        for name in ("local_noise", "epsilon"):
            if (value := getattr(self, name)) is not None:
                POSITIVE.check(FederationError, "; leave it out for none", **{f"policy.{name}": value})
        if self.epsilon is not None and self.local_noise is None:
            raise FederationError("policy.epsilon applies to local noise only: set local_noise as well")
        if self.local_noise is not None and self.kinds != ["learn"]:
            raise FederationError('policy.local_noise protects rates only: set kinds = ["learn"]')

    @classmethod
    def read(cls, table: dict[str, Any]) -> "Policy":
        """Read the table of a `site.toml`."""
        table = with_new_names(table) if isinstance(table, dict) else table
        return cls(**as_table("policy", table, get_type_hints(cls), FederationError))

    def check(self, task: Task) -> RunSettings:
        """Return the settings of a task that this policy allows; refuse any other."""
        if task.kind not in self.kinds:
            raise RefusedError(f"tasks of the kind {task.kind!r} are not allowed here")
        try:
            settings = SETTINGS[task.kind](**with_new_names(task.settings))
        except (TypeError, FederationError) as error:
            raise RefusedError(f"invalid settings: {error}") from None
        if (epochs := settings.local_epochs) > self.local_epochs:
            raise RefusedError(f"local_epochs is {epochs}, above this site's limit of {self.local_epochs}")
        if (size := settings.batch_size) < self.smallest_batch:
            raise RefusedError(f"batch_size is {size}, below this site's minimum of {self.smallest_batch}")
        if not 0 <= task.round < self.rounds:
            raise RefusedError(f"round is {task.round}, but this site allows 0 to {self.rounds - 1}")
        if not 0 <= task.client < task.clients:
            raise RefusedError(f"there is no client {task.client} of {task.clients}")
        noise = settings.noise if isinstance(settings, LearnSettings) and settings.privacy == "local" else 0
        if noise < (self.local_noise or 0):
            raise RefusedError(f"local noise is {noise}, below this site's minimum of {self.local_noise}")
        return settings

    def check_model(self, card: ModelCard) -> None:
        """Refuse networks that are not on the site's list."""
        name = card.build.get("name")
        if name not in self.models:
            raise RefusedError(f"the model {name!r} is not on this site's list: {', '.join(self.models)}")

    def check_vector(self, kind: str, vector: "Tensor", classes: int = 0, length: int | None = None) -> None:
        """Refuse values that are not finite, and rates above the site's limit.

        Of the first `length` numbers, the last `classes` are not rates but the counts of a label prior. What
        follows is not limited: the coefficients of a guard only multiply predictions.
        """
        if not bool(vector.isfinite().all()):
            raise RefusedError("the vector is not finite")
        vector = vector[:length]
        rates, counts = vector.split([len(vector) - classes, classes])
        if classes and not (float(counts.min()) >= 0 and float(counts.max()) <= MOST_COUNTS):
            raise RefusedError(f"the label prior has counts that are not between 0 and {MOST_COUNTS:g}")
        if kind in ("learn", "guard") and len(rates) and float(rates.abs().max()) > self.largest_rate:
            raise RefusedError(f"a rate is above this site's limit of {self.largest_rate:g}")


class Budget:
    """The privacy cost of a site's replies with local noise, stored in a file.

    Every reply counts, including a repeated one. The costs of Gaussian noise add up as 1 / noise squared.
    """

    def __init__(self, path: Path, policy: Policy) -> None:
        self._path, self._policy = path, policy

    @property
    def spent(self) -> float:
        """Epsilon spent so far, at the policy's delta."""
        return self._epsilon(self._squares())

    def spend(self, settings: RunSettings) -> None:
        """Count a reply before it is computed; refuse it if that would exceed the budget."""
        if self._policy.epsilon is None or not isinstance(settings, LearnSettings):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._path.with_suffix(".lock")):  # each message has its own process, and must count
            mu = SENSITIVITY["local"] / settings.noise
            squares = self._squares() + mu * mu  # may become infinite, where ** would raise
            if not self._epsilon(squares) <= self._policy.epsilon:
                raise RefusedError(f"this site's privacy budget of {self._policy.epsilon:g} is exhausted")
            with written_in_one_step(self._path) as file:
                record = {"format": FORMAT, "version": VERSION, "mu_squared": squares}
                file.write(json.dumps(sealed(record)).encode())

    def _squares(self) -> float:
        """The sum spent so far. A damaged record could understate it, so then every reply is refused."""
        if not self._path.exists():
            return 0.0
        try:
            return _squares_in(read_json(self._path), self._path)
        except ValueError as error:
            log.error("%s is damaged (%s): restore it, or delete it and set a new epsilon", self._path, error)
            raise RefusedError("this site's record of its privacy budget is damaged") from error

    def _epsilon(self, squares: float) -> float:
        if not squares < _ENDLESS:
            return math.inf
        return epsilon_of_mu(math.sqrt(squares), self._policy.delta) if squares else 0.0


def _squares_in(record: Any, path: Path) -> float:
    """The sum in a record; a ValueError if the record is damaged.

    Records of version 1 contain only the sum, some with a checksum and older ones without. The next reply
    rewrites them.
    """
    if not isinstance(record, dict):
        raise ValueError("it is not a table")
    if record.keys() == {"mu_squared"}:
        warn_of_old_format(str(path))
    elif not is_sound(record):
        raise ValueError("its checksum does not match")
    elif record.keys() != {"mu_squared", CHECKSUM} and (
        (record.get("format"), record.get("version")) != (FORMAT, VERSION)
    ):
        raise ValueError("its format is unknown")
    squares: Any = record.get("mu_squared")
    if type(squares) not in (int, float) or not 0 <= squares <= sys.float_info.max:
        raise ValueError(f"mu_squared is {squares!r:.60}")
    return float(squares)
