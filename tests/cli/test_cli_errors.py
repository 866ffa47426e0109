"""How commands end: every error in a line or two, and its exit code."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner, Result

import ttpfl
from tests.cli.help_texts import commands
from tests.helpers.program import finish, python, start
from ttpfl.cli import app
from ttpfl.cli.errors import in_one_line
from ttpfl.models import Signature, build, save_model
from ttpfl.util.files import written_in_one_step


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="ttpfl")


@pytest.mark.parametrize("words", list(commands(get_command(app))))
def test_wrong_usage_is_two_lines(words: tuple[str, ...]) -> None:
    result = invoke(*words, "--no-such-option")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert "--no-such-option" in first or "Missing" in first
    assert second == f"see {' '.join(('ttpfl', *words))} --help"


def test_a_near_miss_is_named() -> None:
    assert "Did you mean 'train'?" in invoke("tain").stderr


@pytest.mark.parametrize(
    "words", [["--debug", "data", "info", "cifar11"], ["data", "info", "cifar11", "--debug"]]
)
def test_debug_shows_where_errors_come_from(words: list[str]) -> None:
    assert isinstance(invoke(*words).exception, ttpfl.DataError)


def test_debug_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_DEBUG", "1")
    assert isinstance(invoke("data", "info", "cifar11").exception, ttpfl.DataError)


def test_debug_after_two_dashes_is_a_name() -> None:
    result = invoke("data", "info", "--", "--debug")
    assert result.stderr.startswith("error: unknown data set '--debug'")


def test_what_nobody_thought_of_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[str, ...]:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("ttpfl.data.registry.names", broken)
    result = invoke("data", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: this is a bug: ZeroDivisionError: division by zero; "
        "run again with --debug, and report what it shows\n"
    )
    assert isinstance(invoke("data", "list", "--debug").exception, ZeroDivisionError)


def test_a_pipe_that_breaks_inside_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[str, ...]:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("ttpfl.data.registry.names", broken)
    result = invoke("data", "list")
    assert (result.exit_code, result.stderr) == (1, "error: [Errno 32] Broken pipe\n")


@pytest.fixture
def stream(tmp_path: Path) -> tuple[list[str], str]:
    """A command that answers each picture at once and then waits for more, and a picture."""
    signature = Signature(("a", "b"), (28, 28), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    how = {"name": "shallow_cnn", "num_classes": 2, "image_size": 28}
    save_model(tmp_path / "m.safetensors", build(**how), build=how, signature=vars(signature))
    Image.fromarray(np.zeros((28, 28, 3), np.uint8)).save(tmp_path / "x.png")
    words = [
        "-m",
        "ttpfl",
        "personalize",
        "--model",
        str(tmp_path / "m.safetensors"),
        "--batch-size",
        "1",
        "-",
    ]
    return words, str(tmp_path / "x.png")


def ask(process: "subprocess.Popen[str]", picture: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{picture}\n")
    process.stdin.flush()


def test_a_reader_who_has_seen_enough_is_no_error(stream: tuple[list[str], str]) -> None:
    words, picture = stream
    with start(*words) as process:
        ask(process, picture)
        assert process.stdout is not None
        assert process.stdout.readline() == "path,class,confidence\n"
        assert process.stdout.readline().startswith(f"{picture},")
        process.stdout.close()
        ask(process, picture)
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_ctrl_c(stream: tuple[list[str], str]) -> None:
    words, picture = stream
    process = start(*words)
    ask(process, picture)
    assert process.stdout is not None
    assert process.stdout.readline() == "path,class,confidence\n"
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "interrupted\n")


WORK = """
import os, sys, time, typer
from ttpfl.cli.errors import reporting_errors
from ttpfl.util.parallel import in_parallel

def work(number):
    os.write(1, f"{number}\\n".encode())  # at once, so that lines of two workers do not mix
    time.sleep(1000)

try:
    with reporting_errors(False):
        in_parallel(work, 4, 2)
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def test_ctrl_c_does_not_wait_for_workers() -> None:
    process = start("-c", WORK)
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {"0\n", "1\n"}
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it, too
    assert finish(process) == (130, "", "interrupted\n")


def test_a_folder_that_is_missing_is_named_by_the_path_that_was_given(tmp_path: Path) -> None:
    target = tmp_path / "none" / "page.html"
    with pytest.raises(FileNotFoundError) as caught, written_in_one_step(target):
        pass
    assert in_one_line(caught.value) == f"{target}: No such file or directory"


def test_warnings_look_like_warnings() -> None:
    script = (
        "import logging, ttpfl.cli\n"
        "ttpfl.cli.show_warnings()\n"
        "logging.getLogger('ttpfl').warning('%d clients failed', 3)"
    )
    assert python("-c", script) == (0, "", "warning: 3 clients failed\n")
