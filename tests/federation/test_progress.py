"""What is shown beside a run."""

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from small_clients import clients, linear

from ttpfl.errors import FederationError
from ttpfl.federation import Callback, TrainSettings, train
from ttpfl.federation.callbacks import RunInfo
from ttpfl.federation.progress import Display, TensorBoard
from ttpfl.federation.state import Record, RunState


def shown(terminal: bool, *more: Callback, **options: Any) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=200)
    settings = TrainSettings(rounds=3, batch_size=4, workers=0, **options)
    try:
        train(linear(), clients(), settings, callbacks=[Display(console), *more])
    except ZeroDivisionError:
        text.write("failed")
    return text.getvalue()


def test_a_terminal_shows_everything() -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown(terminal=True))  # without colours
    assert "training" in text
    assert "3/3" in text
    assert "validation" in text
    assert "2TD = 90 numbers" in text  # 2 x 3 rounds x 15 weights


def test_losses_are_no_percentages() -> None:
    display = Display(Console(file=io.StringIO()))
    state = RunState(torch.zeros(1))
    display.on_start(RunInfo("train", 10, 1, 1, 1, 1), state)
    record = {"target": {"accuracy": 0.523, "loss": 1.532, "worst_loss": 2.0}, "failed": [], "bytes_total": 0}
    display.on_round(state, record)
    assert "target 52.3% 1.532 2.000 ·" in display._figures(record)


def test_a_run_that_was_stopped_early_says_what_it_sent() -> None:
    class Enough(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            state.stopped = state.round == 2

    text = re.sub(r"\x1b\[[0-9;]*m", "", shown(True, Enough()))
    assert "over 2 rounds: 2TD = 60 numbers" in text


def test_time_left_also_where_rounds_take_long() -> None:
    now = 0.0
    display = Display(Console(file=io.StringIO(), force_terminal=True, width=200, get_time=lambda: now))
    state = RunState(torch.zeros(1))
    display.on_start(RunInfo("train", 10, 1, 1, 1, 1), state)
    for number in range(4):
        now, state.round = now + 4000, number + 1
        display.on_round(state, {"round": number, "failed": [], "bytes_total": 0})
    assert display.seconds_left == pytest.approx(6 * 4000)
    display.close()


def test_quiet_without_a_terminal() -> None:
    assert shown(terminal=False).strip() == ""


def test_the_terminal_is_given_back_after_an_error() -> None:
    class Trouble(Callback):
        def on_round(self, state: RunState, record: Record) -> None:
            raise ZeroDivisionError

    hide, show = "\x1b[?25l", "\x1b[?25h"  # the cursor
    text = shown(True, Trouble())
    assert text.endswith("failed")
    assert text.count(hide) == text.count(show) == 1


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
