"""Faults that really happen: killed processes, bad clients, a full disk, Ctrl-C."""

import io
import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers import victim
from tests.helpers.processes import alive, environment, wait_until_gone
from tests.helpers.small_clients import Bad, Site, clients, linear, mlp, pair, same_state
from tests.helpers.victim import noted, wait_for
from ttpfl.errors import FederationError
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.training import Trained
from ttpfl.util import die_with_parent as orphans
from ttpfl.util.locks import folder_lock


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return victim.go(tmp_path_factory.mktemp("undisturbed"))


def check_resumed(directory: Path, expected: Trained, kills: int = 1) -> None:
    """The same weights and history, at most one round repeated per kill, no process left."""
    assert not wait_until_gone(victim.workers_of(directory))
    result = victim.go(directory, resume=True)
    assert same_state(result.model, expected.model)
    assert result.history == expected.history
    lines = (directory / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected.history
    diary = Counter((directory / "diary").read_text().split())
    assert diary.keys() == {str(number) for number in range(victim.ROUNDS)}
    assert diary.total() <= victim.ROUNDS + kills
    assert not wait_until_gone(victim.workers_of(directory))
    assert not list((directory / "checkpoints").glob(".*"))


def killed(directory: Path, do: Callable[[], None]) -> None:
    """Do it in a forked process that is killed, by itself or by us."""
    process = multiprocessing.get_context("fork").Process(target=do)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("after", [0, 4])
def test_kill_at_some_moment(tmp_path: Path, undisturbed: Trained, after: int) -> None:
    begun = {"target": victim.go, "args": (tmp_path,), "kwargs": {"waits": True}}
    process = multiprocessing.get_context("fork").Process(**begun)
    process.start()
    wait_for(tmp_path, after, lambda: not process.is_alive())
    time.sleep(random.Random(after).uniform(0, 0.03))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (tmp_path / "pids").mkdir(exist_ok=True)
    check_resumed(tmp_path, undisturbed)


@pytest.mark.parametrize("after", [0, 3, 6])
def test_kill_while_rates_are_learned(tmp_path: Path, after: int) -> None:
    expected = victim.learn_rates(tmp_path / "undisturbed")
    directory = tmp_path / "killed"
    begun = {"target": victim.learn_rates, "args": (directory,), "kwargs": {"waits": True}}
    process = multiprocessing.get_context("fork").Process(**begun)
    process.start()
    wait_for(directory, after, lambda: not process.is_alive())
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    resumed = victim.learn_rates(directory, resume=True)
    assert torch.equal(resumed.rates.values, expected.rates.values)
    assert float(resumed.rates.values.abs().max()) > 0
    assert resumed.history == expected.history
    assert noted(directory) <= victim.ROUNDS + 1


@pytest.mark.parametrize("moment", ["half written", "before the rename", "before the cleaning"])
def test_kill_inside_checkpoint_writing(
    tmp_path: Path, undisturbed: Trained, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()
    real_sync, real_replace, real_unlink = os.fsync, os.replace, Path.unlink

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def sync(descriptor: int) -> None:
        calls["sync"] += 1
        if moment == "half written" and calls["sync"] == 5:
            os.ftruncate(descriptor, 100)
            die()
        real_sync(descriptor)

    def replace(source: Any, target: Any) -> None:
        calls["replace"] += 1
        if moment == "before the rename" and calls["replace"] == 4:
            die()
        real_replace(source, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if moment == "before the cleaning" and self.name.startswith("round-"):
            die()
        real_unlink(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "replace", replace)
        patch.setattr(Path, "unlink", unlink)
        killed(tmp_path, lambda: victim.go(tmp_path) and None)
    check_resumed(tmp_path, undisturbed)


def script(directory: Path, *more: str, rounds: int = victim.ROUNDS) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", victim.__name__, directory, str(rounds), *more],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_interrupt(tmp_path: Path) -> None:
    process = script(tmp_path, rounds=100_000)
    end = time.monotonic() + 120
    while not list((tmp_path / "checkpoints").glob("round-*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert str(tmp_path / "checkpoints") in errors
    assert "resume" in errors
    workers = victim.workers_of(tmp_path)
    assert not wait_until_gone(workers)
    done = len((tmp_path / "history.jsonl").read_text().splitlines())
    assert f"stopped after {done} rounds" in errors
    resumed = victim.go(tmp_path, resume=True, rounds=done + 2)
    whole = victim.go(tmp_path / "whole", rounds=done + 2)
    assert same_state(resumed.model, whole.model)
    assert resumed.history == whole.history


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_use_is_refused(tmp_path: Path, resume: bool) -> None:
    """As long as the process that computes lives."""
    main = script(tmp_path, rounds=100_000)
    wait_for(tmp_path, 1, lambda: main.poll() is not None)
    before = noted(tmp_path)
    with pytest.raises(FederationError, match=f"{tmp_path} is in use by process {main.pid}:"):
        victim.go(tmp_path, resume=resume)
    assert main.poll() is None
    wait_for(tmp_path, before + 1, lambda: main.poll() is not None)  # it was not disturbed
    main.kill()
    main.communicate(timeout=120)
    done = len((tmp_path / "history.jsonl").read_text().splitlines())
    assert len(victim.go(tmp_path, resume=True, rounds=done + 2).history) == done + 2


def test_a_lock_is_not_inherited(tmp_path: Path) -> None:
    note = tmp_path / "child"

    def hold() -> None:
        with folder_lock(tmp_path):
            if (child := os.fork()) != 0:
                note.write_text(f"{child}.")
            time.sleep(600)

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    while not (note.exists() and note.read_text().endswith(".")):
        time.sleep(0.01)
    child = int(note.read_text()[:-1])
    try:
        with pytest.raises(FederationError, match="in use"), folder_lock(tmp_path):
            pass
        process.kill()
        process.join()
        assert alive(child)
        with folder_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_is_used_once_within_a_process(tmp_path: Path) -> None:
    """A process that is refused does not release the lock."""
    (tmp_path / "link").symlink_to(tmp_path)
    with folder_lock(tmp_path):
        for folder in (tmp_path, tmp_path / "link"):
            with (
                pytest.raises(FederationError, match="in use by another run of this process"),
                folder_lock(folder),
            ):
                pass
        other = multiprocessing.get_context("fork").Process(target=refused, args=(tmp_path, os.getpid()))
        other.start()
        other.join()
        assert other.exitcode == 0
    with folder_lock(tmp_path):
        pass


def refused(folder: Path, holder: int) -> None:
    with pytest.raises(FederationError, match=f"in use by process {holder}:"), folder_lock(folder):
        pass


def interrupted_by(callback: Callback, **options: Any) -> Any:
    return train(linear(), clients(), TrainSettings(rounds=9, batch_size=4, **options), callbacks=[callback])


class Interrupt(Callback):
    """Presses Ctrl-C."""

    def __init__(self, times: int) -> None:
        self.times, self.calls = times, list[str]()

    def on_round(self, state: RunState, record: Record) -> None:
        self.calls.append(f"round {state.round}")
        if state.round == 2:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)

    def on_interrupt(self, state: RunState) -> None:
        self.calls.append(f"interrupted after {state.round}")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def terminal() -> Iterator[None]:
    """Interrupts do what they do there; what is started in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_interrupt_is_a_wish_and_two_are_an_order(workers: int, terminal: None) -> None:
    before = signal.getsignal(signal.SIGINT)
    once, twice = Interrupt(1), Interrupt(2)
    with pytest.raises(KeyboardInterrupt, match="stopped after 2 rounds; no checkpoint was kept"):
        interrupted_by(once, workers=workers)
    assert once.calls == ["round 1", "round 2", "interrupted after 2", "close"]
    with pytest.raises(KeyboardInterrupt):
        interrupted_by(twice, workers=workers)
    assert twice.calls == ["round 1", "round 2", "close"]
    assert signal.getsignal(signal.SIGINT) is before


class Impatient(Site):
    """Has Ctrl-C pressed in its third round: once, or until it has an effect."""

    def __init__(self, name: str, data: Any, notes: Path, once: bool) -> None:
        super().__init__(name, data, notes)
        self.main, self.once, self.round = os.getpid(), once, 0

    def train(self) -> Any:
        self.round += 1
        while self.round == 3:
            os.kill(self.main, signal.SIGINT)
            if self.once:
                break
            time.sleep(2)  # two at once would be one
        return super().train()


@pytest.mark.parametrize("once", [True, False])
def test_no_interrupt_loses_rounds(
    tmp_path: Path, once: bool, terminal: None, caplog: pytest.LogCaptureFixture
) -> None:
    sites = [Impatient("one", pair(8, 1), tmp_path, once)]
    settings = TrainSettings(rounds=5, batch_size=4, workers=1, checkpoint_every=9, buffers="local")
    with pytest.raises(KeyboardInterrupt, match=r"after 2 rounds; resume from .*checkpoints$"):
        train(mlp(), sites, settings, run_dir=tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["round-000002.safetensors"]
    assert [record.message for record in caplog.records] == [
        "stopping after the next client; press Ctrl-C again to stop immediately"
    ]
    calm = [Site("one", pair(8, 1), tmp_path)]
    resumed = train(mlp(), calm, settings, run_dir=tmp_path, resume=True)
    whole = train(mlp(), calm, settings)
    assert same_state(resumed.model, whole.model)
    assert resumed.history == whole.history


def test_no_client_starts_after_an_interrupt(tmp_path: Path, terminal: None) -> None:
    """One that came while callbacks were busy."""
    asked = []

    class Asked(Site):
        def train(self) -> Any:
            asked.append(self.id)
            return super().train()

    settings = TrainSettings(rounds=9, batch_size=4, workers=0)
    with pytest.raises(KeyboardInterrupt, match="after 2 rounds"):
        train(linear(), [Asked("one", pair(8, 1), tmp_path)], settings, callbacks=[Interrupt(1)])
    assert len(asked) == 2


class Fatal(Site):
    """Kills its worker: once, or always."""

    def __init__(self, name: str, data: Any, notes: Path, always: bool) -> None:
        super().__init__(name, data, notes)
        self._mark, self._always = notes / f"{name}.killed", always

    def train(self) -> Any:
        if self._always or not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train()


def test_a_killed_worker_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = TrainSettings(rounds=3, batch_size=4, workers=2, buffers="local")
    calm: list[Any] = [Site(name, data, tmp_path) for name, data in clients().items()]
    rough = [*calm[:2], Fatal("client-2", clients()["client-2"], tmp_path, always=False), *calm[3:]]
    expected = train(mlp(dropout=0.5), calm, settings)
    with caplog.at_level(logging.WARNING, "ttpfl"):
        got = train(mlp(dropout=0.5), rough, settings)
    assert same_state(got.model, expected.model)
    assert got.history == expected.history
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'client-2'" in caplog.text


def test_a_client_that_always_kills_its_worker_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sites: list[Any] = [Site(name, data, tmp_path) for name, data in clients().items()]
    sites.append(Fatal("the-killer", pair(6, 1), tmp_path, always=True))
    result = train(linear(), sites, TrainSettings(rounds=2, batch_size=4, workers=2))
    assert [record["failed"] for record in result.history] == [["the-killer"], ["the-killer"]]
    assert not any(record["abandoned"] for record in result.history)
    assert "'the-killer' is left out: its worker process died twice (signal SIGKILL)" in caplog.text
    with pytest.raises(
        FederationError, match="all 1 clients of round 0 failed; 'the-killer': its worker process died"
    ):
        train(linear(), sites[-1:], TrainSettings(rounds=2, batch_size=4, workers=2))


def pids(directory: Path, count: int) -> list[int]:
    """Of processes that note themselves, once there are so many."""
    end = time.monotonic() + 120
    while len(paths := list(directory.glob("[0-9]*"))) < count and time.monotonic() < end:
        time.sleep(0.01)
    return [int(path.name) for path in paths]


def test_workers_that_never_return_end_with_the_main_process(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=victim.never_ending, args=(tmp_path,))
    process.start()
    workers = pids(tmp_path, 2)
    assert len(workers) == 2
    assert all(alive(worker) for worker in workers)
    process.kill()
    process.join()
    assert not wait_until_gone(workers)


def test_without_help_from_the_kernel_a_thread_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "_ask_the_kernel", lambda: False)
    monkeypatch.setattr(orphans, "_LOOK_EVERY", 0.02)
    test_workers_that_never_return_end_with_the_main_process(tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_clients_are_refused_by_name(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    x, y = pair(6, 1)
    good = clients((8, 8, 9, 9, 12))
    settings = TrainSettings(rounds=3, batch_size=4, workers=workers, shuffle=False)
    bad = {
        "broken": Bad(),
        "nan": (x / 0, y),
        "huge": (x * 1e30, y),  # finite, but its result is not
        "labels": (x, y + 100),
        "shape": (torch.zeros(6, 9), y),
        "empty": (x[:0], y[:0]),
    }
    with caplog.at_level(logging.WARNING, "ttpfl"):
        got = train(linear(), {**good, **bad}, TrainSettings(**{**vars(settings), "min_reply_fraction": 0.4}))
    without = train(linear(), good, settings)
    assert same_state(got.model, without.model)
    for record, other in zip(got.history, without.history, strict=True):
        assert record["failed"] == sorted(bad)
        assert record["clients"] == 11
        assert not record["abandoned"]
        assert record["train_loss"] == other["train_loss"]
    for name, reason in {
        "broken": "OSError: the disk is broken",
        "nan": "NaN or Inf in sample 0",
        "huge": "not finite",
        "labels": "is not a class",
        "empty": "no data",
    }.items():
        assert any(f"'{name}'" in r.message and reason in r.message for r in caplog.records), name


@pytest.mark.parametrize("workers", [0, 2])
def test_a_client_whose_figures_are_not_finite(workers: int, tmp_path: Path) -> None:
    class Huge(Site):
        def validation(self) -> Any:
            x, y = super().validation()
            return (x * 1e38).clamp(-3e38, 3e38), y

    good = clients((8, 8))
    settings = TrainSettings(rounds=2, batch_size=4, workers=workers, shuffle=False)
    result = train(steep(), [*good.values(), Huge("huge", pair(8, 3), tmp_path)], settings, run_dir=tmp_path)
    assert [record["failed"] for record in result.history] == [["huge"]] * 2
    assert same_state(result.model, train(steep(), good, settings).model)
    assert "NaN" not in (tmp_path / "history.jsonl").read_text()


def steep() -> Any:
    model = linear()
    with torch.no_grad():
        model.weight.mul_(10)
    return model


class Broken:
    """A client whose data cannot be read from the second round on."""

    def __init__(self, reason: str) -> None:
        self.data, self.reason, self.turns = pair(4, 1), reason, 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> Any:
        self.turns += 1
        if self.turns > 4:
            raise OSError(self.reason)
        return self.data[0][place], self.data[1][place]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (
            ("block 7 of 'a' is bad", "block 12 of 'b' is bad"),
            ["all 2 clients failed in the same way; 'north': "],
        ),
        (
            ("block 7 is bad", "no such file"),
            ["client 'north' is left out: ", "client 'south' is left out: "],
        ),
    ],
)
def test_the_same_failure_of_all_clients_is_told_once(
    reasons: tuple[str, str], expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    sites = {name: Broken(reason) for name, reason in zip(("north", "south"), reasons, strict=True)}
    train(linear(), sites, TrainSettings(rounds=2, batch_size=4, workers=0, validate_every=0, check=False))
    warned = [text for text in caplog.messages if text.startswith("round 1: ")]
    assert len(warned) == len(expected)
    assert all(text.startswith(f"round 1: {start}") for text, start in zip(warned, expected, strict=True))


def test_figures_that_nothing_can_be_computed_with(caplog: pytest.LogCaptureFixture) -> None:
    """A loss of about 1e37, to the power of ten."""
    x, y = pair(4, 1)
    good = clients((4, 4))
    settings = TrainSettings(rounds=1, batch_size=4, workers=0, algorithm="qffl", q=10.0, lr=1e-37)
    result = train(linear(), {**good, "huge": (x * 1e37, y)}, settings)
    assert result.history[0]["failed"] == ["huge"]
    assert "'huge' is left out: its metrics cannot be used" in caplog.text


def test_a_mean_that_is_not_finite_is_no_model(caplog: pytest.LogCaptureFixture) -> None:
    x, y = pair(4, 1)
    good = clients((4, 4))
    settings = TrainSettings(rounds=1, batch_size=4, workers=0, algorithm="qffl", q=8.0, lr=1e-37)
    result = train(linear(), {**good, "huge": (x * 1e37, y)}, settings)
    assert result.history[0]["abandoned"]
    assert same_state(result.model, linear())
    assert "the aggregate of the clients' results is not finite" in caplog.text


class Counts(nn.Module):
    """Has a buffer that training changes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.seen = self.seen + 1
        return self.inner(x)


def test_a_mean_that_is_not_finite_changes_no_local_buffers() -> None:
    x, y = pair(4, 1)
    kept: list[dict[int, Any]] = []

    class Watch(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            kept.append(dict(state.local))

    settings = TrainSettings(
        rounds=1, batch_size=4, workers=0, algorithm="qffl", q=8.0, lr=1e-37, buffers="local"
    )
    good = clients((4, 4))
    abandoned = train(Counts(), {**good, "huge": (x * 1e37, y)}, settings, callbacks=[Watch()])
    assert abandoned.history[0]["abandoned"]
    train(Counts(), good, settings, callbacks=[Watch()])
    assert [sorted(local) for local in kept] == [[], [0, 1]]


def test_workers_do_not_wait_for_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have taken the place of stderr, and a thread of it may be writing when workers are forked."""

    class Busy(io.StringIO):
        def write(self, text: str) -> int:
            raise TimeoutError("its lock is held by a thread that is not here")

    class Talking(Site):
        def train(self) -> Any:
            print("well", file=sys.stderr)
            return super().train()

    monkeypatch.setattr(sys, "stderr", Busy())
    sites = [Talking(str(number), pair(8, number), tmp_path) for number in range(2)]
    result = train(linear(), sites, TrainSettings(rounds=1, batch_size=4, workers=2))
    assert result.history[0]["failed"] == []


class Sick(Site):
    """Fails in some rounds."""

    def __init__(self, name: str, data: Any, notes: Path, rounds: set[int]) -> None:
        super().__init__(name, data, notes)
        self.rounds, self.round = rounds, 0

    def train(self) -> Any:
        self.round += 1
        if self.round - 1 in self.rounds:
            raise ConnectionError("away")
        return super().train()


class SickAtLearning(Sick):
    """The same with the data that rates are learned on."""

    def validation(self) -> Any:
        return self.train()


def sick(tmp_path: Path, rounds: set[int], count: int = 3, kind: type[Sick] = Sick) -> list[Any]:
    return [
        kind(name, data, tmp_path, rounds if number < count else set())
        for number, (name, data) in enumerate(clients().items())
    ]


def test_a_round_with_too_few_answers_is_abandoned(tmp_path: Path) -> None:
    vectors = []

    class Watch(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            vectors.append((state.vector.clone(), {k: v.clone() for k, v in state.local.items()}))

    settings = TrainSettings(rounds=4, batch_size=4, workers=0, min_reply_fraction=0.5, buffers="local")
    got = train(mlp(), sick(tmp_path, {1}), settings, callbacks=[Watch()])
    assert [record["abandoned"] for record in got.history] == [False, True, False, False]
    assert got.history[1]["failed"] == ["client-0", "client-1", "client-2"]
    assert torch.equal(vectors[1][0], vectors[0][0])
    assert all(torch.equal(vectors[1][1][client], vectors[0][1][client]) for client in range(4))
    assert not torch.equal(vectors[2][0], vectors[1][0])
    # Exactly at the minimum is enough.
    got = train(mlp(), sick(tmp_path, {1}, count=2), settings)
    assert not got.history[1]["abandoned"]


def test_three_abandoned_rounds_in_a_row_end_the_run(tmp_path: Path) -> None:
    settings = TrainSettings(rounds=9, batch_size=4, workers=0)
    with pytest.raises(FederationError, match=r"3 rounds in a row.*client-0, client-1, client-2"):
        train(mlp(), sick(tmp_path, {1, 2, 3}), settings)
    assert len(train(mlp(), sick(tmp_path, {1, 2, 4, 5}), settings).history) == 9


def test_a_round_with_too_few_answers_for_krum_is_abandoned(tmp_path: Path) -> None:
    settings = LearnSettings(optimizer="sgd", rounds=3, batch_size=4, workers=0, average="krum")
    got = learn(mlp(), sick(tmp_path, {1}, 1, SickAtLearning), settings)
    assert [record["abandoned"] for record in got.history] == [False, True, False]


@pytest.mark.parametrize("average", ["trimmed", "krum"])
def test_too_few_clients_for_an_average_are_told_before_any_work(average: str) -> None:
    with pytest.raises(FederationError, match="use average='median'"):
        learn(mlp(), {"north": Bad(9), "south": Bad(5)}, LearnSettings(average=average, workers=0))


def test_a_trimmed_mean_that_leaves_out_no_client_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LearnSettings(optimizer="sgd", rounds=1, batch_size=4, workers=0, average="trimmed", trim=0.25)
    learn(mlp(), sick(tmp_path, {0}, 0, SickAtLearning), settings)
    assert "plain mean" not in caplog.text
    learn(mlp(), sick(tmp_path, {0}, 1, SickAtLearning), settings)
    assert "trim=0.25 leaves out none of 3 results" in caplog.text


@pytest.mark.parametrize("minimum", [0.0, 0.5])
def test_a_later_round_without_any_answer_is_abandoned(tmp_path: Path, minimum: float) -> None:
    settings = TrainSettings(rounds=5, batch_size=4, workers=0, min_reply_fraction=minimum)
    got = train(mlp(), sick(tmp_path, {1, 3}, count=4), settings)
    assert [record["abandoned"] for record in got.history] == [False, True, False, True, False]
    assert got.history[1]["failed"] == ["client-0", "client-1", "client-2", "client-3"]
    with pytest.raises(FederationError, match="3 rounds in a row"):
        train(mlp(), sick(tmp_path, {1, 2, 3}, count=4), settings)


@pytest.mark.parametrize("workers", [0, 2])
def test_if_all_fail_the_reason_is_told(workers: int) -> None:
    bad = {"north": Bad(9), "south": Bad(5)}
    with pytest.raises(FederationError, match=r"all 2 clients of round 0 failed; 'north'.*disk is broken"):
        train(linear(), bad, TrainSettings(workers=workers))
    with pytest.raises(FederationError, match=r"all 2 clients of round 0 failed; 'north'.*disk is broken"):
        learn(linear(), bad, LearnSettings(workers=workers))


def test_namesakes_count_each(tmp_path: Path) -> None:
    twins = sick(tmp_path, {0})
    for one in twins[:3]:
        one.id = "twin"
    got = train(linear(), twins, TrainSettings(rounds=1, batch_size=4, workers=0))
    assert got.history[0]["failed"] == ["twin"] * 3
    assert got.history[0]["abandoned"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"a small disk cannot be mounted (as root it can): {error}")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted (as root it can): {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("spare", [0, 3_000, 20_000])
def test_a_full_disk(small_disk: Path, spare: int) -> None:
    """Full at once, in the middle of a checkpoint, or some rounds later."""
    ballast = small_disk / "ballast"

    class Fill(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            if state.round == 3:
                free = os.statvfs(small_disk)
                ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - spare)))

    settings = TrainSettings(rounds=30, cohort=3, batch_size=4, workers=0, keep=30)
    data = clients((8, 9, 5, 6))
    with pytest.raises(FederationError, match=r"could not be written.*No space left.*intact.*resume"):
        train(mlp(), data, settings, run_dir=small_disk, callbacks=[Fill()])
    assert not list((small_disk / "checkpoints").glob(".*"))
    ballast.unlink()
    settings = TrainSettings(**{**vars(settings), "keep": 2})
    got = train(mlp(), data, settings, run_dir=small_disk, resume=True)
    expected = train(mlp(), data, settings)
    assert same_state(got.model, expected.model)
    assert got.history == expected.history
