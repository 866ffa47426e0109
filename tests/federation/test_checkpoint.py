"""Checkpoints and resuming: the same bits as without interruption, whatever happened to the files."""

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.small_clients import Noisy, Site, clients, linear, mlp, pair, same_state
from ttpfl.errors import FederationError
from ttpfl.federation import Callback, TrainSettings, train
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.checkpoints.checkpoint import Checkpoints
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.training import Trained


def data() -> dict[str, Any]:
    return {name: Noisy(pair) for name, pair in clients((8, 9, 5, 6)).items()}


def go(
    directory: Path | None,
    rounds: int = 5,
    resume: bool = False,
    model: nn.Module | None = None,
    **options: Any,
) -> Trained:
    callbacks = options.pop("callbacks", ())
    settings = TrainSettings(**{"rounds": rounds, "cohort": 3, "batch_size": 4, "workers": 0, **options})
    model = mlp(dropout=0.5) if model is None else model
    return train(model, data(), settings, run_dir=directory, resume=resume, callbacks=callbacks)


def written(directory: Path) -> list[int]:
    return [int(path.stem.split("-")[1]) for path in sorted((directory / "checkpoints").iterdir())]


def newest(directory: Path) -> Path:
    return max((directory / "checkpoints").iterdir())


def lines(directory: Path) -> list[Record]:
    return [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]


def same(a: Trained, b: Trained) -> bool:
    return same_state(a.model, b.model) and a.history == b.history


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"buffers": "local", "workers": 2},
        {"momentum": 0.9, "algorithm": "fedprox"},
        {"algorithm": "qffl"},
        {"checkpoint_every": 3},
        {"patience": 1, "lr": 3.0, "batch_size": 5},
        {"patience": 20, "buffers": "local"},
    ],
    ids=str,
)
def test_resumed_runs_are_the_same_to_the_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    """Also if the rounds that are asked for become more."""
    whole = go(tmp_path / "whole", **options)
    go(tmp_path / "parts", rounds=1, **options)
    go(tmp_path / "parts", rounds=3, resume=True, **options)
    parts = go(tmp_path / "parts", resume=True, **options)
    assert same(parts, whole)
    assert lines(tmp_path / "parts") == whole.history
    for name in ("model.safetensors", "history.jsonl", f"checkpoints/{newest(tmp_path / 'whole').name}"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    again = go(tmp_path / "parts", resume=True, **options)  # there is nothing more to do
    assert same(again, whole)


def test_fewer_rounds_than_there_are(tmp_path: Path) -> None:
    whole = go(tmp_path, rounds=4)
    before = written(tmp_path)
    with pytest.raises(
        FederationError, match=r"rounds is 3, but the run in .* already has 4: set rounds to 4 or"
    ):
        go(tmp_path, rounds=3, resume=True)
    assert written(tmp_path) == before
    assert same(go(tmp_path, rounds=4, resume=True), whole)


def test_fewer_rounds_than_a_run_took_that_found_its_end(tmp_path: Path) -> None:
    options = {"patience": 1, "lr": 3.0, "batch_size": 5}
    whole = go(tmp_path, rounds=60, **options)
    done = len(whole.history)
    assert 1 < done < 60
    assert same(go(tmp_path, rounds=done - 1, resume=True, **options), whole)


class Stop(Callback):
    """Ends the process's part in a run as an error would, after some rounds."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, state: RunState, record: Record) -> None:
        if state.round == self.after:
            raise ZeroDivisionError


@pytest.mark.parametrize("every", [1, 2, 3])
def test_rounds_since_the_last_checkpoint_are_repeated(tmp_path: Path, every: int) -> None:
    whole = go(None, rounds=7)
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, rounds=7, checkpoint_every=every, callbacks=[Stop(6)])
    assert written(tmp_path)[-1] == 5 // every * every
    assert same(go(tmp_path, rounds=7, resume=True), whole)
    assert lines(tmp_path) == whole.history


def test_rounds_can_be_added(tmp_path: Path) -> None:
    go(tmp_path, rounds=3)
    assert same(
        go(tmp_path, rounds=6, resume=True, workers=2, keep=1, checkpoint_every=2), go(None, rounds=6)
    )
    assert written(tmp_path) == [6]


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    go(tmp_path, rounds=6)
    assert written(tmp_path) == [4, 5, 6]
    go(tmp_path / "b", rounds=7, checkpoint_every=2, keep=2)
    assert written(tmp_path / "b") == [6, 7]


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) - 9
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def flip_history(content: bytes) -> bytes:
    return content.replace(b"train_accuracy", b"train_accurecy", 1)


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip,
        flip_history,
        lambda content: b"",
        lambda content: b"junk" * 99,
        lambda content: content[:-1],
        lambda content: bytes([255] * 8) + content[8:],
        lambda content: (2).to_bytes(8, "little") + b"{}",
    ],
)
def test_damaged_ones_are_skipped_with_a_warning(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    go(tmp_path, rounds=4)
    newest = tmp_path / "checkpoints" / "round-000004.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(damage(content))
    assert newest.read_bytes() != content
    with caplog.at_level(logging.WARNING, "ttpfl"):
        assert same(go(tmp_path, resume=True), go(None))
    assert "round-000004.safetensors is damaged" in caplog.text
    assert len(caplog.records) == 1


def test_no_single_byte_can_change_unnoticed(tmp_path: Path) -> None:
    path, state = tmp_path / "one", RunState(torch.arange(3.0), 2, [{"round": 0}, {"round": 1}])
    content = checkpoint.encode(state, {"seed": 1})
    path.write_bytes(content)
    assert torch.equal(checkpoint.read(path)[0].vector, state.vector)
    for position in range(0, len(content), 7):
        for bit in (1, 32):
            path.write_bytes(content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
            try:
                found, identity = checkpoint.read(path)
            except checkpoint._DamagedError:
                continue
            # Only what has no meaning may be different.
            assert checkpoint.encode(found, identity) == content, position


def test_if_all_are_damaged_the_run_begins_anew(tmp_path: Path) -> None:
    go(tmp_path, rounds=3)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"")
    assert same(go(tmp_path, resume=True), go(None))


@pytest.mark.parametrize("sound", [0, 3])
def test_damaged_later_ones_do_not_push_out_new_ones(tmp_path: Path, sound: int) -> None:
    """A run that went back to an older one, or began anew, keeps what it writes; the later ones stay, too."""
    go(tmp_path, rounds=8, keep=8)
    for number in written(tmp_path):
        if number > sound:
            (tmp_path / "checkpoints" / f"round-{number:06d}.safetensors").write_bytes(b"")
    assert checkpoint.rounds_done(tmp_path) == sound
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, rounds=9, resume=True, keep=2, callbacks=[Stop(sound + 4)])
    assert written(tmp_path) == list(range(sound + 2, 9))
    assert checkpoint.rounds_done(tmp_path) == sound + 3
    assert same(go(tmp_path, rounds=9, resume=True, keep=2), go(None, rounds=9))
    assert written(tmp_path) == [8, 9]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"seed": 1}, "seed was 0, now it is 1"),
        ({"lr": 0.2}, "lr was 0.1, now it is 0.2"),
        ({"cohort": 2}, "cohort was 3, now it is 2"),
        ({"algorithm": "fedprox"}, "algorithm was 'fedavg', now it is 'fedprox'"),
        ({"buffers": "local"}, "buffers was"),
        ({"model": mlp(1)}, "model was"),
        ({"model": mlp(dropout=0.1)}, "model was"),
    ],
)
def test_another_run_is_refused(tmp_path: Path, options: dict[str, Any], key: str) -> None:
    go(tmp_path, rounds=2)
    before = written(tmp_path)
    with pytest.raises(FederationError, match=key):
        go(tmp_path, resume=True, **options)
    assert written(tmp_path) == before


def renamed(number: int) -> dict[str, Any]:
    return {
        (f"site-{place}" if place == number else name): one
        for place, (name, one) in enumerate(data().items())
    }


def test_other_clients_and_functions_are_refused(tmp_path: Path) -> None:
    settings = TrainSettings(rounds=2, cohort=3, batch_size=4, workers=0)

    def other_loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, label_smoothing=0.1)

    train(linear(), data(), settings, run_dir=tmp_path)
    for number in (0, 2, 3):
        with pytest.raises(FederationError, match="client_names was"):
            train(linear(), renamed(number), settings, run_dir=tmp_path, resume=True)
    with pytest.raises(FederationError, match=r"loss was 'ttpfl\.cross_entropy', now .*other_loss"):
        train(linear(), data(), settings, run_dir=tmp_path, resume=True, loss=other_loss)
    with pytest.raises(FederationError, match=r"logits was None, now it is '.*newest'"):
        train(linear(), data(), settings, run_dir=tmp_path, resume=True, logits=newest)


def test_names_of_very_many_clients_are_looked_at_here_and_there() -> None:
    made = []

    class Lazy(Sequence[Any]):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, number: int) -> Any:
            made.append(number)
            return Site(f"{prefix}-{number}", pair(4, 0), Path())

    prefix = "a"
    first = ClientPool(Lazy()).names_hash()
    assert made[0] == 0
    assert made[-1] == 99_999
    assert len(set(made)) == 1000
    assert len(made) == 1001  # the first one was asked whether clients have names
    assert ClientPool(Lazy()).names_hash() == first
    prefix = "b"
    assert ClientPool(Lazy()).names_hash() != first


@pytest.mark.parametrize(
    ("change", "gone", "message"),
    [
        ({"torch": "1.0"}, (), "torch was '1.0', now it is"),
        ({}, ("client_names", "loss"), "did not record client_names, loss: make sure"),
    ],
)
def test_what_only_warns(
    tmp_path: Path,
    change: dict[str, str],
    gone: tuple[str, ...],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another torch, and a checkpoint of a version that did not note as much."""
    go(tmp_path, rounds=2)
    for path in (tmp_path / "checkpoints").iterdir():
        state, identity = checkpoint.read(path)
        changed = {key: value for key, value in {**identity, **change}.items() if key not in gone}
        path.write_bytes(checkpoint.encode(state, changed))
    with caplog.at_level(logging.WARNING, "ttpfl"):
        assert same(go(tmp_path, resume=True), go(None))
    assert message in caplog.text
    assert len(caplog.records) == 1


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    go(tmp_path, rounds=1)
    with pytest.raises(FederationError, match="already has a run: resume it"):
        go(tmp_path)
    with pytest.raises(FederationError, match="pass run_dir="):
        go(None, resume=True)


def test_resume_without_a_checkpoint_begins(tmp_path: Path) -> None:
    assert same(go(tmp_path / "new" / "folder", resume=True), go(None))


def test_functions_among_a_models_attributes_do_not_hinder(tmp_path: Path) -> None:
    """They have another address in every process."""

    def model() -> nn.Module:
        net = linear()
        net.activation = lambda x: F.relu(x)
        return net

    go(tmp_path, rounds=2, model=model())
    assert same(go(tmp_path, resume=True, model=model()), go(None, model=model()))


def test_what_callbacks_add_or_decide_is_kept(tmp_path: Path) -> None:
    class Mine(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            record["mine"] = state.round * 10
            state.stopped = state.round == 3

    result = go(tmp_path, callbacks=[Mine()])
    assert [record["mine"] for record in lines(tmp_path)] == [10, 20, 30]
    again = go(tmp_path, resume=True, callbacks=[Mine()])
    assert same(again, result)  # it was decided that it is enough


def test_half_written_files_of_the_killed_are_removed(tmp_path: Path) -> None:
    go(tmp_path, rounds=2)
    rest = tmp_path / "checkpoints" / ".round-000003.safetensors.123.456.part"
    rest.write_bytes(b"half a checkpo")
    go(tmp_path, resume=True)
    assert not rest.exists()


def test_no_pickle_and_plain_json(tmp_path: Path) -> None:
    go(tmp_path, rounds=1, patience=3)
    content = next((tmp_path / "checkpoints").iterdir()).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    card = json.loads(header["__metadata__"]["ttpfl"])
    assert card["round"] == 1
    assert card["history"][0]["round"] == 0
    assert {"vector", "best"} <= header.keys()


def test_no_best_loss_yet_is_plain_json_too(tmp_path: Path) -> None:
    path, state = tmp_path / "one", RunState(torch.zeros(2), 1, [{"round": 0}])
    path.write_bytes(checkpoint.encode(state, {}))
    assert b"Infinity" not in path.read_bytes()
    assert checkpoint.read(path)[0].best_loss == math.inf


def test_a_best_loss_as_it_was_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = tmp_path / "one", RunState(torch.zeros(2), 1, [{"round": 0}])
    with monkeypatch.context() as patch:
        patch.setattr(math, "isinf", lambda number: False)
        path.write_bytes(checkpoint.encode(state, {}))
    assert b"Infinity" in path.read_bytes()
    assert checkpoint.read(path)[0].best_loss == math.inf


def test_figures_that_are_not_finite_do_not_hinder(tmp_path: Path) -> None:
    """Whoever evaluates may say nan: no reason to end a run when it is written."""

    class Mine(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            record["mine"] = math.nan

    go(tmp_path, rounds=2, callbacks=[Mine()])
    assert same_state(go(tmp_path, resume=True, callbacks=[Mine()]).model, go(None).model)


def test_times_of_rounds_that_come_again_are_forgotten(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, checkpoint_every=2, callbacks=[Stop(4)])
    timing = tmp_path / "timing.jsonl"
    with open(timing, "ab") as file:
        file.write(b"\xff[]\n[]\n{}\n" + b'{"round": 1, "sec{"round": 1, "seconds": 2}\n{"round": 0, "sec')
    go(tmp_path, resume=True)
    assert [json.loads(line)["round"] for line in timing.read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_a_checkpoint_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, rounds=2)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        writer = Checkpoints(tmp_path, {}, keep=1)
        with pytest.raises(FederationError, match=r"No space left.*earlier checkpoints are intact"):
            writer.on_round(RunState(torch.zeros(2), 3), {})
    assert written(tmp_path) == [1, 2]
    assert same(go(tmp_path, resume=True), go(None))


def test_local_buffers_of_a_model_that_has_none(tmp_path: Path) -> None:
    options = {"buffers": "local", "workers": 2}
    go(tmp_path, rounds=2, model=linear(), **options)
    assert same(go(tmp_path, resume=True, model=linear(), **options), go(None, model=linear(), **options))
