"""What can be seen of a run."""

import sys
from pathlib import Path

import pytest

from tests.helpers.small_clients import clients, linear
from ttpfl.errors import FederationError
from ttpfl.federation import Callback, LearnSettings, TrainSettings, learn, train
from ttpfl.federation.checkpoints.progress import Rounds, Sent, TensorBoard
from ttpfl.federation.common.state import Record, RunState

SETTINGS = {"batch_size": 4, "workers": 0}


def test_every_round_is_told_with_its_loss() -> None:
    calls: list[tuple[int, int | None, str]] = []

    def advance(done: int, total: int | None, figures: str = "") -> None:
        calls.append((done, total, figures))

    result = train(linear(), clients(), TrainSettings(rounds=3, **SETTINGS), callbacks=[Rounds(advance)])
    assert [(done, total) for done, total, _ in calls] == [(1, 3), (2, 3), (3, 3)]
    for record, (_, _, words) in zip(result.history, calls, strict=True):
        assert words.startswith(
            f"loss {record['train_loss']:.3f}, validation {record['validation_loss']:.3f} ("
        )


def test_a_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    calls: list[int] = []
    for rounds in (2, 4):
        settings = TrainSettings(rounds=rounds, **SETTINGS)
        callback = Rounds(lambda done, total, figures: calls.append(done))
        train(linear(), clients(), settings, run_dir=tmp_path, resume=rounds == 4, callbacks=[callback])
    assert calls == [1, 2, 3, 4]


def test_python_prints_nothing_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    train(linear(), clients(), TrainSettings(rounds=2, batch_size=4, workers=2))
    learn(linear(), clients(), LearnSettings(rounds=2, **SETTINGS))
    assert capfd.readouterr() == ("", "")


def test_what_a_run_that_was_stopped_early_sent() -> None:
    class Enough(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            state.stopped = state.round == 2

    for rounds, callbacks, numbers in (
        (1, [], "1 round: 2TD = 30"),
        (3, [], "3 rounds: 2TD = 90"),
        (3, [Enough()], "2 rounds: 2TD = 60"),
    ):
        lines: list[str] = []  # 2 x rounds x 15 weights
        settings = TrainSettings(rounds=rounds, **SETTINGS)
        train(linear(), clients(), settings, callbacks=[Sent(lines.append), *callbacks])
        assert lines == [f"sent per client over {numbers} numbers"]


def test_tensorboard_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(FederationError, match="pip install tensorboard"):
        TensorBoard(str(tmp_path))


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install tensorboard")
    settings = TrainSettings(rounds=2, batch_size=4, workers=0)
    train(linear(), clients(), settings, callbacks=[TensorBoard(str(tmp_path))])
    assert any(path.stat().st_size for path in tmp_path.iterdir())
