"""Callbacks: one small protocol for progress displays, checkpoints, logs and user code."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ttpfl.core.rates_check import Candidate, keep
from ttpfl.errors import FederationError
from ttpfl.federation.common.state import Record, RunState
from ttpfl.util.files import written_in_one_step


@dataclass(frozen=True)
class RunInfo:
    """The fixed properties of a run."""

    kind: str
    """train or learn."""
    rounds: int
    clients: int
    cohort: int
    model_numbers: int
    """Size of the model (D in the paper)."""
    vector_numbers: int
    """Size of the vector sent in a round (d in the paper; D in training)."""


class Callback:
    """Base class of callbacks; by default, every method does nothing."""

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Called before the first round of a new or resumed run."""

    def on_round(self, state: RunState, record: Record) -> None:
        """Called after a round. May add to the record; setting `state.stopped` ends the run."""

    def on_interrupt(self, state: RunState) -> None:
        """Called when the user stops the run; the unfinished round is discarded."""

    def on_end(self, state: RunState) -> None:
        """Called after the last round."""

    def close(self) -> None:
        """Called at the very end, also after an error: release resources."""


class History(Callback):
    """Writes `history.jsonl` with one line per round, and `timing.jsonl` with the seconds it took."""

    def __init__(self, directory: Path) -> None:
        self._history, self._timing = directory / "history.jsonl", directory / "timing.jsonl"

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Keep the lines of the rounds in the state; later rounds will be repeated."""
        with _clear_errors(self._history), written_in_one_step(self._history) as file:
            file.write("".join(f"{json.dumps(record)}\n" for record in state.history).encode())
        if self._timing.exists():
            with _clear_errors(self._timing):
                kept = _lines_before(state.round, self._timing.read_bytes())
                with written_in_one_step(self._timing) as file:
                    file.write(kept)
        self._last = time.perf_counter()

    def on_round(self, state: RunState, record: Record) -> None:
        """Add a line to each file."""
        now = time.perf_counter()
        timing = {"round": record["round"], "seconds": round(now - self._last, 4)}
        for path, entry in ((self._history, record), (self._timing, timing)):
            with _clear_errors(path), open(path, "a") as file:
                file.write(f"{json.dumps(entry)}\n")
        self._last = now


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "checkpoints are intact; free some space and resume"
        raise FederationError(f"{path} could not be written ({error}): {remedy}") from error


def _lines_before(rounds: int, content: bytes) -> bytes:
    """The lines of earlier rounds, without a line that was cut off when the process was killed."""
    kept = []
    for line in content.splitlines(keepends=True):
        with suppress(ValueError, TypeError, KeyError):
            if line.endswith(b"\n") and json.loads(line)["round"] < rounds:
                kept.append(line)
    return b"".join(kept)


class _VectorTracking(Callback, ABC):
    """Keeps the vector that a round starts with: the loss in the round's record is the loss of this one."""

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Keep the initial vector."""
        self._before = state.vector.clone()

    def on_round(self, state: RunState, record: Record) -> None:
        """Pass on the vector that the round started with, if its loss is known."""
        if record.get("validation_loss") is not None:
            self.consider(state, record, self._before)
        self._before = state.vector.clone()

    @abstractmethod
    def consider(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Decide whether to keep a vector whose loss is in the record."""


class Keeping(_VectorTracking):
    """Keeps the rates of some rounds as alternatives to the last; see `ttpfl.core.rates_check.keep`."""

    def consider(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Keep the rates if they are the best of their span of rounds."""
        excess = record["validation_loss"] - record["plain_loss"]
        keep(state.kept, excess, Candidate(state.round - 1, vector))


class EarlyStopping(_VectorTracking):
    """Keeps the vector with the lowest validation loss, and stops `patience` rounds after it."""

    def __init__(self, patience: int) -> None:
        self._patience = patience

    def on_round(self, state: RunState, record: Record) -> None:
        """Compare with the best vector so far."""
        super().on_round(state, record)
        state.stopped = state.round - state.best_round > self._patience

    def consider(self, state: RunState, record: Record, vector: Tensor) -> None:
        """Keep the vector if it is the best so far."""
        if record["validation_loss"] < state.best_loss:
            state.best, state.best_loss = vector, record["validation_loss"]
            state.best_round = state.round - 1


class Evaluation(Callback):
    """Evaluates the vector on target clients every `every` rounds."""

    def __init__(self, evaluate: Callable[[Tensor], Mapping[str, float]], every: int) -> None:
        self._evaluate, self._every = evaluate, every

    def on_round(self, state: RunState, record: Record) -> None:
        """Add the metrics to the record."""
        if state.round % self._every == 0:
            metrics = self._evaluate(state.current)
            record["target"] = {str(name): float(value) for name, value in metrics.items()}
