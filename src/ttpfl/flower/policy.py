"""What a site's operator lets the server ask for. Everything else is refused, with the reason."""

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

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("ttpfl")

FORMAT, VERSION = "ttpfl.privacy", 2
_ENDLESS = 1e12  # of mu squared: epsilon would have 12 digits, and is no longer computed

SETTINGS: dict[str, type[RunSettings]] = {"learn": LearnSettings, "train": TrainSettings}


@dataclass(frozen=True)
class Policy:
    """Bounds, as the table `[policy]` of `site.toml` has them.

    >>> Policy(kinds=["learn"]).check(Task("train", 0, 0, 3, {}, "", "", {}))
    Traceback (most recent call last):
        ...
    ttpfl.errors.RefusedError: tasks of the kind 'train' are not allowed here
    """

    kinds: list[str] = field(default_factory=lambda: ["learn", "train"])
    """Tasks that are done: learn (only rates leave the site), train (a whole model does)."""
    models: list[str] = field(default_factory=lambda: ["shallow_cnn", "resnet18", "resnet50"])
    """Names for `ttpfl.models.build`; your own as package.module:function, which is then imported."""
    largest_model: int = 1_000_000_000
    """Bytes."""
    most_models: int = 10
    """Models that are kept here; the one that was not used for the longest time is removed for a new one."""
    largest_rate: float = 1000.0
    """Of the numbers that come with a task of learning."""
    local_epochs: int = 10
    rounds: int = 100_000
    smallest_batch: int = 2
    fewest_samples: int = 10
    """With fewer samples the site does not answer: sums over few people say much about each. It holds for
    the data that a task works on and, when training looks at validation data, for that, too."""
    local_noise: float | None = None
    """If given: tasks of learning must have privacy = "local" with at least this noise."""
    epsilon: float | None = None
    """If given: what all answers with local noise together may cost, at `delta`."""
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
            raise FederationError("policy.epsilon is spent by local noise only: set local_noise, too")
        if self.local_noise is not None and self.kinds != ["learn"]:
            raise FederationError('policy.local_noise protects rates only: set kinds = ["learn"]')

    @classmethod
    def read(cls, table: dict[str, Any]) -> "Policy":
        """From the table in the site's file."""
        table = with_new_names(table) if isinstance(table, dict) else table
        return cls(**as_table("policy", table, get_type_hints(cls), FederationError))

    def check(self, task: Task) -> RunSettings:
        """The task's settings, if it is within the bounds."""
        if task.kind not in self.kinds:
            raise RefusedError(f"tasks of the kind {task.kind!r} are not allowed here")
        try:
            settings = SETTINGS[task.kind](**with_new_names(task.settings))
        except (TypeError, FederationError) as error:
            raise RefusedError(f"the settings make no sense: {error}") from None
        asked = {name: getattr(settings, name) for name in ("local_epochs", "batch_size")}
        if asked["local_epochs"] > self.local_epochs:
            raise RefusedError(
                f"{asked['local_epochs']} epochs are more than the {self.local_epochs} allowed here"
            )
        if asked["batch_size"] < self.smallest_batch:
            raise RefusedError(
                f"batches of {asked['batch_size']} are smaller than the {self.smallest_batch} allowed here"
            )
        if not 0 <= task.round < self.rounds:
            raise RefusedError(f"round {task.round} is not one of the {self.rounds} allowed here")
        if not 0 <= task.client < task.clients:
            raise RefusedError(f"there is no client {task.client} of {task.clients}")
        if self.local_noise is not None:
            self._check_noise(settings)
        return settings

    def _check_noise(self, settings: RunSettings) -> None:
        noise = getattr(settings, "noise", 0) if getattr(settings, "privacy", "") == "local" else 0
        if noise < (self.local_noise or 0):
            raise RefusedError(f"local noise of {noise} is less than the {self.local_noise} demanded here")

    def check_model(self, card: ModelCard) -> None:
        """Only networks on the list are built."""
        name = card.build.get("name")
        if name not in self.models:
            raise RefusedError(f"the model {name!r} is not on this site's list: {', '.join(self.models)}")

    def check_vector(self, kind: str, vector: "Tensor") -> None:
        """Numbers that nothing good can come of are not worked with."""
        if not bool(vector.isfinite().all()):
            raise RefusedError("the vector is not finite")
        if kind == "learn" and len(vector) and float(vector.abs().max()) > self.largest_rate:
            raise RefusedError(f"a rate is larger than the {self.largest_rate:g} allowed here")


class Budget:
    """What a site has given away by answers with local noise, kept in a file.

    Every answer counts, also one that is asked for twice. Gaussian noise adds up as 1 / noise squared.
    """

    def __init__(self, path: Path, policy: Policy) -> None:
        self._path, self._policy = path, policy

    @property
    def spent(self) -> float:
        """Epsilon so far, at the policy's delta."""
        return self._epsilon(self._squares())

    def spend(self, settings: RunSettings) -> None:
        """Count one more answer before it is made; a RefusedError if that would be too much."""
        if self._policy.epsilon is None or not isinstance(settings, LearnSettings):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._path.with_suffix(".lock")):  # each message has its own process; every one counts
            mu = SENSITIVITY["local"] / settings.noise
            squares = self._squares() + mu * mu  # which may be infinite, where ** is an error
            if not self._epsilon(squares) <= self._policy.epsilon:
                raise RefusedError(f"this site's privacy budget of {self._policy.epsilon:g} is used up")
            with written_in_one_step(self._path) as file:
                record = {"format": FORMAT, "version": VERSION, "mu_squared": squares}
                file.write(json.dumps(sealed(record)).encode())

    def _squares(self) -> float:
        """What was spent; a damaged record could say less than that, so nothing more is given away."""
        if not self._path.exists():
            return 0.0
        try:
            return _squares_in(read_json(self._path), self._path)
        except ValueError as error:
            log.error("%s is damaged (%s): restore it, or set epsilon anew and delete it", self._path, error)
            raise RefusedError("this site's record of its privacy budget is damaged") from error

    def _epsilon(self, squares: float) -> float:
        if not squares < _ENDLESS:
            return math.inf
        return epsilon_of_mu(math.sqrt(squares), self._policy.delta) if squares else 0.0


def _squares_in(record: Any, path: Path) -> float:
    """What a record says was spent; a ValueError if it is damaged.

    Records of version 1 have nothing but the sum, with a checksum or, before that, without one. They are
    written anew with the next answer.
    """
    if not isinstance(record, dict):
        raise ValueError("it is no table")
    if record.keys() == {"mu_squared"}:
        warn_of_old_format(str(path))
    elif not is_sound(record):
        raise ValueError("its checksum does not match")
    elif record.keys() != {"mu_squared", CHECKSUM} and (
        (record.get("format"), record.get("version")) != (FORMAT, VERSION)
    ):
        raise ValueError("its format is not known")
    squares: Any = record.get("mu_squared")
    if type(squares) not in (int, float) or not 0 <= squares <= sys.float_info.max:
        raise ValueError(f"it says that {squares!r:.60} was spent")
    return float(squares)
