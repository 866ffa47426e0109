"""`kill -9` at 20 random moments of training and rate learning: resumed runs end with the same bits."""

import multiprocessing
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import victim
from tests.helpers.processes import wait_until_gone
from tests.helpers.victim import noted, wait_for
from ttpfl.core.rates import Rates
from ttpfl.federation import epsilon_of_rates

pytestmark = pytest.mark.slow

RUNS, KILLS = 10, 2  # runs, and how often each of them is killed before it may end
KINDS: dict[str, Callable[..., Any]] = {
    "training": victim.go,
    "rates": victim.learn_rates,
    "private rates": partial(victim.learn_rates, privacy="central"),
}
RESULTS = ("model.safetensors", "rates.safetensors", "history.jsonl")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of runs that were not killed, by kind."""
    folders = {kind: tmp_path_factory.mktemp("undisturbed") / "run" for kind in KINDS}
    for kind, folder in folders.items():
        KINDS[kind](folder)
    return folders


def kill(run: Callable[..., Any], directory: Path, resume: bool, rounds: int, seconds: float) -> None:
    """Begin or resume a run in a process of its own, and kill that so long after so many more rounds."""
    begun = {"target": run, "args": (directory,), "kwargs": {"resume": resume, "waits": True}}
    done = noted(directory)
    process = multiprocessing.get_context("fork").Process(**begun)
    process.start()
    wait_for(directory, done + rounds, lambda: not process.is_alive())
    time.sleep(seconds)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL  # it was hit, and had not ended before


@pytest.mark.parametrize("number", range(RUNS))
def test_a_run_that_was_killed_twice_ends_with_the_same_bits(
    number: int, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    kind, luck = list(KINDS)[number % len(KINDS)], random.Random(number)
    expected = undisturbed[kind]
    directory = tmp_path / "killed"
    directory.mkdir()
    if (expected / "noise.key").exists():  # the same noise, so that there is something to compare
        shutil.copyfile(expected / "noise.key", directory / "noise.key")
    for attempt in range(KILLS):
        kill(KINDS[kind], directory, attempt > 0, luck.randrange(4), luck.uniform(0, 0.08))
        (directory / "pids").mkdir(exist_ok=True)
        assert not wait_until_gone(victim.workers_of(directory))
    KINDS[kind](directory, resume=True)
    assert not wait_until_gone(victim.workers_of(directory))
    files = {name: (directory / name).read_bytes() for name in RESULTS if (directory / name).exists()}
    assert len(files) == 2
    assert files == {name: (expected / name).read_bytes() for name in files}
    assert noted(directory) <= victim.ROUNDS + KILLS  # at most the round under way is computed again


def test_a_killed_run_is_accounted_for_once(undisturbed: dict[str, Path]) -> None:
    """Bits alone would not show it, if the account were wrong without a kill, too."""
    rates = Rates.load(undisturbed["private rates"] / "rates.safetensors")
    (run,) = rates.account.runs
    assert run.rounds == victim.ROUNDS
    assert 0 < epsilon_of_rates(rates) < 100
