"""What is seen of work that takes long: a bar in a terminal, plain lines elsewhere."""

import io
import re
from contextlib import suppress

import pytest
from rich.console import Console

from ttpfl.cli.messages import warn
from ttpfl.cli.progress import bar, lines, progress

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def written(
    seconds: float, rounds: int = 10, before: int = 0, total: int | None = 10, patient: bool = False
) -> list[str]:
    """The lines of work whose rounds take so many seconds each."""
    text, clock = io.StringIO(), Clock()
    with lines("stage 2 of 3: training", "round", text, patient, clock) as advance:
        for done in range(before + 1, rounds + 1):
            clock.now += seconds
            advance(done, total, f"loss {done / 10}")
    return text.getvalue().splitlines()


def test_a_line_every_ten_seconds_with_the_first_and_the_last() -> None:
    assert written(seconds=4) == [
        "stage 2 of 3: training",
        "  round 1 of 10, loss 0.1, 36 s left",
        "  round 4 of 10, loss 0.4, 24 s left",
        "  round 7 of 10, loss 0.7, 12 s left",
        "  round 10 of 10, loss 1.0",
    ]


def test_the_last_line_does_not_wait_for_what_comes_after() -> None:
    text = io.StringIO()
    with lines("title", "round", text) as advance:
        advance(1, 2)
        advance(2, 2)
        assert text.getvalue().endswith("  round 2 of 2\n")
    assert text.getvalue().count("round 2 of 2") == 1


def test_short_work_is_told_once() -> None:
    assert written(seconds=0.1, rounds=1, total=1) == ["stage 2 of 3: training", "  round 1 of 1, loss 0.1"]
    assert written(seconds=0.1, rounds=0) == ["stage 2 of 3: training"]


def test_what_was_there_before_does_not_make_it_look_fast() -> None:
    assert written(seconds=60, before=8, total=20)[1:] == [
        "  round 9 of 20, loss 0.9, 11 min 0 s left",
        "  round 10 of 20, loss 1.0, 10 min 0 s left",
    ]


def test_work_that_ends_early_tells_how_far_it_came() -> None:
    assert written(seconds=1, rounds=3)[-1] == "  round 3 of 10, loss 0.3, 7 s left"
    text = io.StringIO()
    with suppress(ZeroDivisionError), lines("title", "round", text) as advance:
        advance(1, 10)
        advance(2, 10)
        raise ZeroDivisionError
    assert text.getvalue().splitlines()[-1].startswith("  round 2 of 10")


def test_patient_commands_speak_only_when_they_take_long() -> None:
    assert written(seconds=0.5, patient=True) == []
    assert written(seconds=4, patient=True) == [
        "stage 2 of 3: training",
        "  round 3 of 10, loss 0.3, 28 s left",
        "  round 6 of 10, loss 0.6, 16 s left",
        "  round 9 of 10, loss 0.9, 4 s left",
        "  round 10 of 10, loss 1.0",
    ]


def test_nobody_knows_how_much_there_is() -> None:
    assert written(seconds=1, rounds=1, total=None)[1:] == ["  round 1, loss 0.1"]


def test_no_codes_of_terminals_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("stage 1 of 1: [bold]work", "step") as advance:
        advance(2, 2, "loss [red]")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "stage 1 of 1: [bold]work\n  step 2 of 2, loss [red]\n")


def test_nothing_is_shown_if_that_would_be_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", "step", show=False) as advance:
        advance(1, 2)
    assert capsys.readouterr() == ("", "")


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=60)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return COLOURS.sub("", console.file.getvalue())


def test_a_terminal_shows_the_stage_and_the_loss() -> None:
    console = terminal()
    with bar("stage 1 of 2: training", "round", console) as advance:
        assert "stage 1 of 2: training" in shown(console)
        advance(3, 20, "loss 0.512")
        assert "round 3 of 20, loss 0.512, " in shown(console)
        advance(20, 20, "loss 0.3")
    assert shown(console).endswith("round 20 of 20, loss 0.3\n\x1b[?25h")  # the last is the cursor


def test_what_is_said_meanwhile_stands_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed past the live display, it was glued to the bar's line."""
    console = terminal()
    with bar("stage", "round", console) as advance:
        advance(1, 2)
        before = shown(console)
        warn("the loss rises")
        said = shown(console)[len(before) :]
        advance(2, 2)
    assert capsys.readouterr().err == ""
    # Back to the start of the bar's line, which is cleared; then the text alone, and the bar below it.
    assert re.match(r"\r(\x1b\[\d*[A-Z])*warning: the loss rises *\n.*round 1 of 2", said)
    warn("afterwards")
    assert capsys.readouterr().err == "warning: afterwards\n"


def test_figures_that_do_not_fit_are_wrapped_and_not_cut() -> None:
    console = terminal()
    with bar("stage", "round", console) as advance:
        advance(1, 2, "loss 0.123, validation 0.456 (78.9%), target online 85.4%")
    assert "85.4%" in shown(console)


def test_work_within_work_has_its_own_line() -> None:
    console = terminal()
    with bar("outside", "method", console) as advance:
        advance(1, 5)
        with bar("inside", "client", console) as inner:
            inner(7, 9)
        advance(2, 5)
    last = shown(console).rsplit("method 2 of 5", 1)[1]
    assert "client 7 of 9" in last
    assert "inside" in shown(console)


def test_a_command_within_a_terminal_shows_bars_all_the_way_down(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    with progress("outside", "method") as advance:
        advance(1, 5)
        with progress("inside", "client") as inner:
            inner(7, 9)
    text = COLOURS.sub("", screen.getvalue())
    assert "inside" in text
    assert re.search("━ client 7 of 9", text)


def test_the_terminal_is_given_back_after_an_error() -> None:
    console = terminal()
    hide, show = "\x1b[?25l", "\x1b[?25h"  # the cursor
    for _ in range(2):
        with suppress(ZeroDivisionError), bar("work", "step", console) as advance:
            advance(1, 2)
            raise ZeroDivisionError
    assert shown(console).count(hide) == shown(console).count(show) == 2
