"""A live display of a run; quiet where there is no terminal."""

import math
import time
from dataclasses import replace
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ttpfl.errors import FederationError
from ttpfl.federation.accountant import in_words
from ttpfl.federation.callbacks import Callback, RunInfo
from ttpfl.federation.state import Record, RunState


class Display(Callback):
    """Round, loss, accuracy, seconds per round, time left, and bytes that a federation would have sent."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._seconds: list[float] = []
        self._progress: Progress | None = None

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Show the bar, if there is a terminal."""
        self._info, self._begin = info, time.perf_counter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            speed_estimate_period=math.inf,  # rounds may take longer than any other period
        )
        description = "training" if info.kind == "train" else "learning rates"
        self._task = self._progress.add_task(
            description, total=info.rounds, completed=state.round, figures="first round"
        )
        self._progress.start()

    def on_round(self, state: RunState, record: Record) -> None:
        """One round further."""
        now = time.perf_counter()
        self._seconds.append(now - self._begin)
        self._begin = now
        if self._progress is not None:
            self._progress.update(self._task, completed=state.round, figures=self._figures(record))

    @property
    def seconds_left(self) -> float | None:
        """As the bar says it; None before the first round's end."""
        return None if self._progress is None else self._progress.tasks[self._task].time_remaining

    def _figures(self, record: Record) -> str:
        parts = []
        for name, label in (("train", "loss"), ("validation", "validation")):
            if f"{name}_loss" in record:
                parts.append(f"{label} {record[f'{name}_loss']:.3f}")
        if "validation_accuracy" in record:
            parts.append(f"{record['validation_accuracy']:.1%}")
        if "target" in record:
            parts.append("target " + " ".join(_figure(*item) for item in record["target"].items()))
        if privacy := in_words(record):
            parts.append(privacy)
        if record["failed"]:
            parts.append(f"[red]{len(record['failed'])} failed[/red]")
        parts.append(f"{median(self._seconds[-5:]):.1f} s")
        parts.append(megabytes(record["bytes_total"]))
        return " · ".join(parts)

    def on_end(self, state: RunState) -> None:
        """Say what a real federation would have sent, and what FedAvg would."""
        self.close()
        if self._console.is_terminal:
            run = replace(self._info, rounds=state.round)  # fewer than planned, if it was stopped early
            self._console.print(communication(run))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()


def _figure(name: str, value: float) -> str:
    return f"{value:.3f}" if name.endswith("loss") else f"{value:.1%}"


def communication(info: RunInfo) -> str:
    """Numbers sent per client that takes part in all rounds, in the paper's terms.

    >>> communication(RunInfo("learn", 200, 240, 60, model_numbers=122_986, vector_numbers=23))
    'sent per client over 200 rounds: D + 2Td = 132,186 numbers; FedAvg: 2TD = 49,194,400'
    """
    rounds, model, vector = info.rounds, info.model_numbers, info.vector_numbers
    fedavg = 2 * rounds * model
    if info.kind == "train":
        return f"sent per client over {rounds} rounds: 2TD = {fedavg:,} numbers"
    sent = model + 2 * rounds * vector
    return f"sent per client over {rounds} rounds: D + 2Td = {sent:,} numbers; FedAvg: 2TD = {fedavg:,}"


def megabytes(count: int) -> str:
    """Bytes in readable form.

    >>> megabytes(12_345_678)
    '12.3 MB'
    """
    return f"{count / 1e6:,.1f} MB"


class TensorBoard(Callback):
    """The history as a TensorBoard log; needs the package tensorboard."""

    def __init__(self, directory: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise FederationError(
                "the package tensorboard is not installed: pip install tensorboard"
            ) from error
        self._writer = SummaryWriter(directory)

    def on_round(self, state: RunState, record: Record) -> None:
        """All figures of the round."""
        figures = {**record, **{f"target_{name}": value for name, value in record.get("target", {}).items()}}
        for name, value in figures.items():
            if isinstance(value, (int, float)) and name != "round":
                self._writer.add_scalar(name, float(value), record["round"])

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
