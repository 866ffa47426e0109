"""A run to be killed, interrupted and resumed: as a script, or in a forked process."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.helpers.small_clients import Site, clients, mlp
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.rate_run import Learned
from ttpfl.federation.training import Trained

ROUNDS = 8


class Diary(Callback):
    """Notes every round that was computed, also those that are forgotten later.

    Whoever shall be killed waits for it in the last round, so that it cannot end before.
    """

    def __init__(self, directory: Path, waits: bool) -> None:
        self._path, self._waits = directory / "diary", waits

    def on_round(self, state: RunState, record: Record) -> None:
        with open(self._path, "a") as file:
            file.write(f"{record['round']}\n")
        if self._waits and state.round == ROUNDS:
            time.sleep(600)


def sites(notes: Path) -> list[Any]:
    notes.mkdir(parents=True, exist_ok=True)
    return [
        Site(name, data, notes, seconds=0.002 * number)
        for number, (name, data) in enumerate(clients((8, 9, 5, 6)).items())
    ]


def go(
    directory: Path, resume: bool = False, rounds: int = ROUNDS, workers: int = 2, waits: bool = False
) -> Trained:
    torch.set_num_threads(1)
    directory.mkdir(parents=True, exist_ok=True)
    settings = TrainSettings(rounds=rounds, cohort=3, batch_size=4, workers=workers, buffers="local")
    return train(
        mlp(dropout=0.5),
        sites(directory / "pids"),
        settings,
        run_dir=directory,
        resume=resume,
        callbacks=[Diary(directory, waits)],
    )


def learn_rates(directory: Path, resume: bool = False, waits: bool = False, privacy: str = "none") -> Learned:
    """The same with rates."""
    torch.set_num_threads(1)
    settings = LearnSettings(rounds=ROUNDS, cohort=3, batch_size=4, lr=5.0, workers=2, privacy=privacy)
    model = mlp()
    notes = sites(directory / "pids")
    diary = Diary(directory, waits)
    return learn(model, notes, settings, run_dir=directory, resume=resume, callbacks=[diary])


def noted(directory: Path) -> int:
    """Rounds that were computed so far."""
    diary = directory / "diary"
    return len(diary.read_text().split()) if diary.exists() else 0


def wait_for(directory: Path, rounds: int, ended: Callable[[], bool], seconds: float = 120) -> None:
    """Until so many rounds were computed."""
    end = time.monotonic() + seconds
    while noted(directory) < rounds and not ended() and time.monotonic() < end:
        time.sleep(0.001)


def workers_of(directory: Path) -> list[int]:
    return [int(path.name) for path in (directory / "pids").iterdir()]


class Endless(Site):
    """Never comes back, and does not listen."""

    def train(self) -> Any:
        super().train()
        while True:
            pass


def never_ending(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    data = clients((8, 9))
    train(
        mlp(),
        [Endless(name, one, directory) for name, one in data.items()],
        TrainSettings(rounds=2, batch_size=4, workers=2),
    )


if __name__ == "__main__":
    print(f"main {os.getpid()}", flush=True)
    go(Path(sys.argv[1]), resume="--resume" in sys.argv, rounds=int(sys.argv[2]))
