"""A run over sites reports its outcome to the command that waits for it, and a running one is left alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from tests.helpers.flower.in_process import NAMES, InProcessGrid, begin_model, local_clients, make_sites
from ttpfl.cli import app, sites
from ttpfl.cli.foreign import model_in
from ttpfl.errors import FederationError
from ttpfl.federation import LearnSettings
from ttpfl.flower import server_app, submit
from ttpfl.flower.create import create
from ttpfl.flower.folder import Federation
from ttpfl.flower.run_spec import RunSpec, read_outcome, write_outcome
from ttpfl.flower.server_app import with_outcome
from ttpfl.util.locks import run_died, run_lock

TRAIN = ["train", "--engine", "flower", "--classes", "10", "--image-size", "28"]


def spec_in(tmp_path: Path) -> Path:
    begin_model(tmp_path / "model.safetensors")
    settings = asdict(LearnSettings(rounds=1, batch_size=6, workers=0))
    out = str(tmp_path / "run")
    return RunSpec("learn", str(tmp_path / "model.safetensors"), out, NAMES, settings).write()


def failure(spec: Path, token: str) -> str:
    outcome = read_outcome(str(spec.parent), token)
    assert outcome is not None
    return str(outcome["failure"])


def test_a_run_that_went_well(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    with_outcome(spec, "a1", InProcessGrid(make_sites(tmp_path / "sites")))  # type: ignore[arg-type]
    assert read_outcome(str(spec.parent), "a1") == {"token": "a1", "failure": None}


def test_a_folder_that_another_run_holds(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    with run_lock(spec.parent, "other"), pytest.raises(FederationError):
        with_outcome(spec, "a1", InProcessGrid({}), seconds=0)  # type: ignore[arg-type]
    assert "another run is writing to" in failure(spec, "a1")


def test_an_invalid_run_spec(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    spec.write_text('{"kind": "learn"}')
    with pytest.raises(FederationError):
        with_outcome(spec, "a1", InProcessGrid({}))  # type: ignore[arg-type]
    assert "not a run spec of this version" in failure(spec, "a1")


def test_the_outcome_is_there_before_the_folder_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, let_go = spec_in(tmp_path), []
    (tmp_path / "model.safetensors").unlink()

    def write(out: str, token: str, failure: str | None) -> None:
        let_go.append(run_died(Path(out), token))

    monkeypatch.setattr(server_app, "write_outcome", write)
    with pytest.raises(FileNotFoundError):
        with_outcome(spec, "a1", InProcessGrid({}))  # type: ignore[arg-type]
    assert let_go == [False]
    assert run_died(spec.parent, "a1")


def test_a_run_that_lives_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, out = create(tmp_path / "trial", NAMES).home, tmp_path / "run"
    out.mkdir()
    (out / "order.json").write_text("of the run that lives")
    monkeypatch.setattr(sites, "LET_GO", 0.0)
    with run_lock(out, "other"):
        done = CliRunner().invoke(app, [*TRAIN, "--federation", str(home), "--out", str(out), "--resume"])
    assert "is still writing to" in " ".join(done.output.split())
    assert (out / "order.json").read_text() == "of the run that lives"
    assert not (out / "begin.safetensors").exists()


def submitted(tmp_path: Path, *more: str) -> RunSpec:
    """The spec that the command writes before it contacts the superlink, which does not run."""
    home, out = create(tmp_path / "trial", NAMES).home, tmp_path / "run"
    words = [*TRAIN, "--federation", str(home), "--out", str(out), "--rounds", "1", *more]
    assert CliRunner().invoke(app, words).exit_code == 1
    return RunSpec.read(out / "order.json")


def test_a_run_with_the_local_engine_is_left_alone(tmp_path: Path) -> None:
    home, out = create(tmp_path / "trial", NAMES).home, tmp_path / "run"
    out.mkdir()
    hold = (
        "import sys; from pathlib import Path; from ttpfl.util.locks import folder_lock\n"
        "with folder_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    # A process of its own: the system's lock is no hindrance within one.
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        done = CliRunner().invoke(app, [*TRAIN, "--federation", str(home), "--out", str(out)])
        other.communicate()
    assert f"is in use by process {other.pid}" in " ".join(done.output.split())
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_timeouts_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = submitted(tmp_path, "--deadline", "7", "--longest", "77")
    assert spec.timeouts == {"deadline": 7, "longest": 77, "connect": 7, "quiet": 20}


def test_the_server_app_writes_the_tensorboard_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    class SummaryWriter:
        """In place of the package tensorboard, which need not be installed."""

        def __init__(self, directory: str) -> None:
            written.append(directory)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append(name)

        def close(self) -> None:
            written.append("closed")

    module = ModuleType("torch.utils.tensorboard")
    module.__dict__["SummaryWriter"] = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    spec = submitted(tmp_path, "--tensorboard", str(tmp_path / "log"))
    server_app.carry_out(spec, InProcessGrid(make_sites(tmp_path / "sites")))  # type: ignore[arg-type]
    assert (written[0], written[-1]) == (str(tmp_path / "log"), "closed")
    assert {"train_loss", "validation_accuracy", "bytes_total"} < set(written)


def test_a_trained_model_says_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, at = submitted(tmp_path), make_sites(tmp_path / "sites")
    server_app.carry_out(spec, InProcessGrid(at))  # type: ignore[arg-type]
    # As `ttpfl personalize` reads it, with no further options.
    _, signature, _ = model_in(Path(spec.out) / "model.safetensors", None)
    assert signature.classes == tuple("0123456789")
    assert signature.image_size == (28, 28)
    for client in local_clients(at).values():
        assert (signature.mean, signature.std) == (client.info.mean, client.info.std)


def test_the_beginning_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    home, out = create(tmp_path / "trial", NAMES).home, tmp_path / "run"
    out.mkdir()
    (out / "history.jsonl").write_text("{}\n")
    (out / "begin.safetensors").write_text("of the earlier run")
    done = CliRunner().invoke(app, [*TRAIN, "--federation", str(home), "--out", str(out), "--seed", "1"])
    assert "already has a run" in " ".join(done.output.split())
    assert (out / "begin.safetensors").read_text() == "of the earlier run"


def test_a_disk_that_is_too_full_for_the_outcome_does_not_hide_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = spec_in(tmp_path)
    (tmp_path / "model.safetensors").unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server_app, "write_outcome", full)
    with pytest.raises(FileNotFoundError):
        with_outcome(spec, "a1", InProcessGrid({}))  # type: ignore[arg-type]
    assert "FileNotFoundError" in caplog.text
    assert "No space left on device" in caplog.text


class Superlink:
    """A superlink, as far as it starts and stops runs: each run finishes some rounds, and is lost then.

    Args:
        out: the runs' folder.
        rounds: how many rounds each run finishes; after these, one ends well.
        status: what is said of a run that was lost.
    """

    def __init__(self, out: Path, rounds: list[int], status: str = "finished:failed") -> None:
        self.out, self.rounds, self.status, self.begun = out, rounds, status, 0

    def start_run(self, federation: Federation, spec: Path, token: str) -> int:
        with run_lock(self.out, token):
            if self.begun == len(self.rounds):
                write_outcome(str(self.out), token, None)
            else:
                with open(self.out / "history.jsonl", "a") as history:
                    history.write("{}\n" * self.rounds[self.begun])
        self.begun += 1
        return self.begun

    def stop_run(self, federation: Federation, run: int) -> None:
        pass

    def run_status(self, federation: Federation, run: int) -> str:
        return self.status


def carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: list[int], *status: str
) -> Superlink:
    federation = create(tmp_path / "trial", NAMES)
    spec = RunSpec.read(spec_in(tmp_path))
    superlink = Superlink(Path(spec.out), rounds, *status)
    monkeypatch.setattr(submit, "control", superlink)
    monkeypatch.setattr(submit, "POLL", 0.0)
    submit.carry_out(federation, spec)
    return superlink


def test_a_run_may_be_lost_any_number_of_times_while_rounds_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [0, 0, 1, 0, 0] + [1] * 10
    assert carried_out(tmp_path, monkeypatch, rounds).begun == len(rounds) + 1


def test_runs_that_are_lost_repeatedly_end_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FederationError, match="the last after 1 rounds: see the superlink's log"):
        carried_out(tmp_path, monkeypatch, [1, 0, 0, 0])


def test_a_run_that_was_stopped_at_the_server_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FederationError, match="run 1 was stopped at the server: continue it with --resume"):
        carried_out(tmp_path, monkeypatch, [1, 1], "finished:stopped")


@pytest.fixture
def interrupts_as_in_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_as_in_a_terminal")
def test_a_run_that_is_begun_while_the_command_is_interrupted_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    def start_run(federation: Federation, spec: Path, token: str) -> int:
        time.sleep(0.5)  # Ctrl-C comes while the command waits for the response
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        return 7

    monkeypatch.setattr(submit.control, "start_run", start_run)
    monkeypatch.setattr(submit.control, "stop_run", lambda federation, run: stopped.append(run))
    spec = RunSpec.read(spec_in(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        submit.carry_out(create(tmp_path / "trial", NAMES), spec)
    assert stopped == [7]
