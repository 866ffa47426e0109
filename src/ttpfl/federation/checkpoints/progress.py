"""Progress of a run: its rounds as text, the numbers sent, and a TensorBoard log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.privacy.accountant import in_words
from ttpfl.util.printable import counted


class Advance(Protocol):
    """A function that is called with the work done, the total (None if unknown), and the latest metrics."""

    def __call__(self, done: int, total: int | None, figures: str = "", /) -> object:
        """Called after each piece of work."""


class Rounds(Callback):
    """Calls a function after every round with the rounds done, the number of rounds, and the metrics.

    >>> from torch import nn, rand, randint
    >>> from ttpfl.federation import TrainSettings, train
    >>> clients = {"north": (rand(8, 4), randint(2, (8,)))}
    >>> settings = TrainSettings(rounds=2, workers=0)
    >>> trained = train(nn.Linear(4, 2), clients, settings, callbacks=[Rounds(print)])  # doctest: +ELLIPSIS
    1 2 loss ...
    2 2 loss ...
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Keep the number of rounds."""
        self._rounds = info.rounds

    def on_round(self, state: RunState, record: Record) -> None:
        """Report the round."""
        self._advance(state.round, self._rounds, figures(record))


class Sent(Callback):
    """Calls a function at the end with the numbers that a real federation, and FedAvg, would send."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Keep the sizes."""
        self._info = info

    def on_end(self, state: RunState) -> None:
        """Report the rounds that were done, which may be fewer than planned."""
        self._write(communication(replace(self._info, rounds=state.round)))


def figures(record: Record) -> str:
    """The metrics of a round as text.

    >>> figures({"train_loss": 0.51234, "validation_loss": 0.7, "validation_accuracy": 0.6, "failed": ["a"]})
    'loss 0.512, validation 0.700 (60.0%), 1 failed'
    """
    parts = [f"loss {record['train_loss']:.3f}"] if "train_loss" in record else []
    if "validation_loss" in record:
        accuracy = f" ({record['validation_accuracy']:.1%})" if "validation_accuracy" in record else ""
        parts.append(f"validation {record['validation_loss']:.3f}{accuracy}")
    target = record.get("target", {}).items()
    parts += [f"target {name} {value:.1%}" for name, value in target if not name.endswith("loss")]
    if privacy := in_words(record):
        parts.append(privacy)
    if record.get("failed"):
        parts.append(f"{len(record['failed'])} failed")
    return ", ".join(parts)


def communication(info: RunInfo) -> str:
    """Numbers sent per client that takes part in all rounds, in the paper's notation.

    >>> communication(RunInfo("learn", 200, 240, 60, model_numbers=122_986, vector_numbers=23))
    'sent per client over 200 rounds: D + 2Td = 132,186 numbers; FedAvg: 2TD = 49,194,400'
    """
    rounds, model, vector = info.rounds, info.model_numbers, info.vector_numbers
    fedavg, sent_over = 2 * rounds * model, f"sent per client over {counted(rounds, 'round')}"
    if info.kind == "train":
        return f"{sent_over}: 2TD = {fedavg:,} numbers"
    sent = model + 2 * rounds * vector
    return f"{sent_over}: D + 2Td = {sent:,} numbers; FedAvg: 2TD = {fedavg:,}"


def metrics(record: Record) -> dict[str, float]:
    """The metrics of a round as numbers, with those of target clients.

    >>> metrics({"round": 3, "train_loss": 0.5, "failed": ["a"], "target": {"accuracy": 0.6}})
    {'train_loss': 0.5, 'target_accuracy': 0.6}
    """
    target = {f"target_{name}": value for name, value in record.get("target", {}).items()}
    numbers = {n: v for n, v in {**record, **target}.items() if isinstance(v, (int, float)) and n != "round"}
    return {name: float(value) for name, value in numbers.items()}


class Log(Protocol):
    """A function of an experiment tracker, such as `mlflow.log_metrics` or `wandb.log`."""

    def __call__(self, metrics: dict[str, float], /, *, step: int) -> object:
        """Called after every round."""


class Metrics(Callback):
    """Passes the metrics of every round to a function of an experiment tracker.

    >>> from torch import nn, rand, randint
    >>> from ttpfl.federation import TrainSettings, train
    >>> clients = {"north": (rand(8, 4), randint(2, (8,)))}
    >>> log = lambda metrics, step: print(step, "train_loss" in metrics)
    >>> settings = TrainSettings(rounds=2, workers=0)
    >>> trained = train(nn.Linear(4, 2), clients, settings, callbacks=[Metrics(log)])
    0 True
    1 True
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def on_round(self, state: RunState, record: Record) -> None:
        """Pass on the metrics."""
        self._log(metrics(record), step=record["round"])


class TensorBoard(Callback):
    """Writes the history as a TensorBoard log; needs the package tensorboard."""

    def __init__(self, directory: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise FederationError("tensorboard is not installed: pip install tensorboard") from error
        self._writer = SummaryWriter(directory)

    def on_round(self, state: RunState, record: Record) -> None:
        """Write all metrics of the round."""
        for name, value in metrics(record).items():
            self._writer.add_scalar(name, value, record["round"])

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
