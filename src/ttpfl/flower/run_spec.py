"""The run spec: what a run over a federation does, as a file that the server app reads."""

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
    """The full description of a run. Paths are on the superlink's machine."""

    kind: str
    """learn or train."""
    model: str
    """The model file; in training, the initial model."""
    out: str
    """The run's folder."""
    sites: list[str]
    """All sites of the federation, in the order of their numbers."""
    settings: dict[str, Any]
    card: dict[str, Any] = field(default_factory=dict)
    """Added to the card of a trained model."""
    rates: str | None = None
    """A rates file to start from."""
    timeouts: dict[str, float] = field(default_factory=lambda: asdict(Timeouts()))
    arch: str | None = None
    """The function that builds the model (package.module:function), if it is not part of ttpfl."""
    largest: float = 1000.0
    """In learning, a reply with a larger number is refused."""
    tensorboard: str | None = None
    """A folder for a TensorBoard log."""

    def write(self) -> Path:
        """Write the spec to the run's folder, and return its path."""
        path = Path(self.out) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as file:
            file.write(json.dumps(asdict(self), indent=2).encode())
        return path

    @classmethod
    def read(cls, path: str | Path) -> "RunSpec":
        """Read a spec from its file."""
        try:
            values = read_json(path)
        except ValueError as error:
            raise FederationError(f"{path} is not valid JSON ({error}): submit the run again") from None
        complete = isinstance(values, dict) and values.keys() == {entry.name for entry in fields(cls)}
        if not complete or not isinstance(values["settings"], dict):
            raise FederationError(f"{path} is not a run spec of this version: submit the run again")
        return cls(**{**values, "settings": with_new_names(values["settings"])})


def write_outcome(out: str, token: str, failure: str | None) -> None:
    """Record how the run with this token ended."""
    with written_in_one_step(Path(out) / OUTCOME) as file:
        file.write(json.dumps({"token": token, "failure": failure}).encode())


def read_outcome(out: str, token: str) -> dict[str, Any] | None:
    """How the run ended; None if it has not."""
    path = Path(out) / OUTCOME
    outcome = json.loads(path.read_text()) if path.exists() else {"token": None}
    return outcome if outcome["token"] == token else None
