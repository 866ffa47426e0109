"""What happens beside a run: one small protocol for display, checkpoints, logs, and the user's own."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.rates_check import Candidate, keep
from ttpfl.errors import FederationError
from ttpfl.federation.common.state import Record, RunState
from ttpfl.util.files import written_in_one_step


@dataclass(frozen=True)
class RunInfo:
    """What is fixed about a run."""

    kind: str
    """train or learn."""
    rounds: int
    clients: int
    cohort: int
    model_numbers: int
    """Numbers in the model (D in the paper)."""
    vector_numbers: int
    """Numbers that travel in a round (d in the paper; D when training)."""


class Callback:
    """Everything that may be overridden; by default nothing happens."""

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Before the first round of a new or resumed run."""

    def on_round(self, state: RunState, record: Record) -> None:
        """After a round. What is added to the record is in the history; `state.stopped` ends the run."""

    def on_interrupt(self, state: RunState) -> None:
        """Somebody asked to stop; the round under way is forgotten."""

    def on_end(self, state: RunState) -> None:
        """After the last round."""

    def close(self) -> None:
        """At the very end, also after an error: let go of what is held."""


class History(Callback):
    """`history.jsonl`, one line per round, and beside it `timing.jsonl` with what is never the same twice."""

    def __init__(self, directory: Path) -> None:
        self._history, self._timing = directory / "history.jsonl", directory / "timing.jsonl"
        self._begin = 0.0

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Begin with the rounds that the state knows: others were lost and will come again."""
        with _clear_errors(self._history), written_in_one_step(self._history) as file:
            file.write("".join(map(_line, state.history)).encode())
        if self._timing.exists():
            with _clear_errors(self._timing):
                kept = _lines_below(self._timing.read_bytes(), state.round)
                with written_in_one_step(self._timing) as file:
                    file.write(kept)
        self._begin = time.perf_counter()

    def on_round(self, state: RunState, record: Record) -> None:
        """Add a line."""
        now = time.perf_counter()
        for path, entry in (
            (self._history, record),
            (self._timing, {"round": record["round"], "seconds": round(now - self._begin, 4)}),
        ):
            with _clear_errors(path), open(path, "a") as file:
                file.write(_line(entry))
        self._begin = now


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FederationError(
            f"{path} could not be written ({error}): checkpoints are intact; make room and resume"
        ) from error


def _lines_below(content: bytes, rounds: int) -> bytes:
    """The lines of earlier rounds; one that a kill cut off is of no use."""
    kept = []
    for line in content.splitlines(keepends=True):
        with suppress(ValueError, TypeError, KeyError):
            if line.endswith(b"\n") and json.loads(line)["round"] < rounds:
                kept.append(line)
    return b"".join(kept)


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry) + "\n"


class _Judging(Callback, ABC):
    """The loss in a record belongs to the vector that the round began with, which is therefore held here."""

    def __init__(self) -> None:
        self._before = torch.empty(0)

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """The first round begins with what is there."""
        self._before = state.vector.clone()

    def on_round(self, state: RunState, record: Record) -> None:
        """Look at the vector that the round began with."""
        if record.get("validation_loss") is not None:
            self.look(state, record, self._before)
        self._before = state.vector.clone()

    @abstractmethod
    def look(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Decide what becomes of a vector whose loss is known."""


class Keeping(_Judging):
    """Keeps the rates of some rounds, to go back to; see `ttpfl.core.rates_check.keep`."""

    def look(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Keep it, if it is the best of its span of rounds."""
        excess = record["validation_loss"] - record["plain_loss"]
        keep(state.kept, excess, Candidate(state.round - 1, vector))


class EarlyStopping(_Judging):
    """Keeps the vector with the smallest validation loss, and stops some rounds after it."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self._patience = patience

    def on_round(self, state: RunState, record: Record) -> None:
        """Compare with the best so far."""
        super().on_round(state, record)
        state.stopped = state.round - state.best_round > self._patience

    def look(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Keep it, if it is the best so far."""
        if record["validation_loss"] < state.best_loss:
            state.best, state.best_loss = vector, record["validation_loss"]
            state.best_round = state.round - 1


class Evaluation(Callback):
    """Every so many rounds, what the holder of the target clients' labels has to say."""

    def __init__(self, evaluate: Callable[[Tensor], Mapping[str, float]], every: int) -> None:
        self._evaluate, self._every = evaluate, every

    def on_round(self, state: RunState, record: Record) -> None:
        """Add the figures to the record."""
        if state.round % self._every == 0:
            figures = self._evaluate(state.vector)
            record["target"] = {str(name): float(value) for name, value in figures.items()}
