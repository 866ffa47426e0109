"""An order: what a run over a federation is to do, as a file that the ServerApp reads."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ttpfl.errors import FederationError
from ttpfl.federation.settings import with_new_names
from ttpfl.flower.timeouts import Timeouts
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import read_json

FILE = "order.json"
OUTCOME = "outcome.json"


@dataclass(frozen=True)
class RunSpec:
    """Everything about a run. Paths are those of the machine that the superlink runs on."""

    kind: str
    """learn or train."""
    model: str
    """A model file; when training, the one to begin with."""
    out: str
    """The run's folder."""
    sites: list[str]
    """All sites of the federation; their order gives each its number."""
    settings: dict[str, Any]
    card: dict[str, Any] = field(default_factory=dict)
    """Kept in the result of training."""
    rates: str | None = None
    """A rates file to begin with."""
    timeouts: dict[str, float] = field(default_factory=lambda: asdict(Timeouts()))
    arch: str | None = None
    """The function that builds the model (package.module:function), if it did not come with ttpfl."""
    largest: float = 1000.0
    """An answer with a larger number is refused, when learning."""
    tensorboard: str | None = None
    """A folder for a TensorBoard log."""

    def write(self) -> Path:
        """Into the run's folder."""
        path = Path(self.out) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as file:
            file.write(json.dumps(asdict(self), indent=2).encode())
        return path

    @classmethod
    def read(cls, path: str | Path) -> "RunSpec":
        """From its file."""
        try:
            said = read_json(path)
        except ValueError as error:
            raise FederationError(f"{path} is not sound JSON ({error}): give the order again") from None
        known = isinstance(said, dict) and said.keys() == {entry.name for entry in fields(cls)}
        if not known or not isinstance(said["settings"], dict):
            raise FederationError(f"{path} is not an order of this version: give it again")
        return cls(**{**said, "settings": with_new_names(said["settings"])})


def write_outcome(out: str, token: str, failure: str | None) -> None:
    """Say how the run with this token ended."""
    with written_in_one_step(Path(out) / OUTCOME) as file:
        file.write(json.dumps({"token": token, "failure": failure}).encode())


def read_outcome(out: str, token: str) -> dict[str, Any] | None:
    """How it ended; None if it has not."""
    path = Path(out) / OUTCOME
    if not path.exists():
        return None
    said = json.loads(path.read_text())
    return said if said["token"] == token else None
