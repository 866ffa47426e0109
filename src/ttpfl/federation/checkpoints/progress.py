"""What can be seen of a run: its rounds in words, what it sent, and a TensorBoard log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.privacy.accountant import in_words
from ttpfl.util.printable import counted


class Advance(Protocol):
    """Told how much is done, of how much in all (None if nobody knows), and the latest figures in words."""

    def __call__(self, done: int, total: int | None, figures: str = "", /) -> object:
        """After each piece of work."""


class Rounds(Callback):
    """Tells a function after every round how far the run is: rounds done, all rounds, figures in words.

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
        """Note how many rounds there are."""
        self._rounds = info.rounds

    def on_round(self, state: RunState, record: Record) -> None:
        """One more."""
        self._advance(state.round, self._rounds, figures(record))


class Sent(Callback):
    """Tells a function at the end what a real federation would have sent, and what FedAvg would."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Note what is sent in a round."""
        self._info = info

    def on_end(self, state: RunState) -> None:
        """Fewer rounds than planned, if it was stopped early."""
        self._say(communication(replace(self._info, rounds=state.round)))


def figures(record: Record) -> str:
    """A round in a few words.

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
    """Numbers sent per client that takes part in all rounds, in the paper's terms.

    >>> communication(RunInfo("learn", 200, 240, 60, model_numbers=122_986, vector_numbers=23))
    'sent per client over 200 rounds: D + 2Td = 132,186 numbers; FedAvg: 2TD = 49,194,400'
    """
    rounds, model, vector = info.rounds, info.model_numbers, info.vector_numbers
    fedavg, sent_over = 2 * rounds * model, f"sent per client over {counted(rounds, 'round')}"
    if info.kind == "train":
        return f"{sent_over}: 2TD = {fedavg:,} numbers"
    sent = model + 2 * rounds * vector
    return f"{sent_over}: D + 2Td = {sent:,} numbers; FedAvg: 2TD = {fedavg:,}"


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
