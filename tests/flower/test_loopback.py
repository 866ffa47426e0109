"""Starting and ending parts of a federation, with programs that only sleep."""

import subprocess
from pathlib import Path

from tests.helpers.flower.real_federation import processes_below, until
from ttpfl.flower import loopback
from ttpfl.flower.folder import Federation, environment


def federation_of_sleepers(home: Path, script: str) -> Federation:
    federation = Federation(home, "trial", "127.0.0.1", 1, ("north",))
    federation.site("north").mkdir(parents=True)
    (federation.site("north") / "start.sh").write_text(f"#!/usr/bin/env bash\n{script}\n")
    (federation.site("north") / "start.sh").chmod(0o755)
    return federation


def test_what_a_part_started_ends_with_it(tmp_path: Path) -> None:
    """Also a helper in a session of its own, which no signal reaches."""
    federation = federation_of_sleepers(tmp_path, "setsid sleep 600 &\nexec sleep 600")
    loopback.start(federation, "north")
    until(lambda: len(processes_below(tmp_path)) == 2)
    (first,) = loopback.running(federation).values()
    loopback.start(federation, "north")  # runs already
    assert loopback.running(federation) == {"north": first}
    loopback.stop(federation, "north")
    assert loopback.running(federation) == {}
    assert processes_below(tmp_path) == {}


def test_a_part_that_was_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    federation = federation_of_sleepers(tmp_path, "setsid sleep 600 &\nexec true")
    loopback.start(federation, "north")
    until(lambda: loopback.running(federation) == {} and processes_below(tmp_path))
    loopback.stop(federation, "north")
    assert processes_below(tmp_path) == {}


def test_a_part_that_ended_before_anybody_looked_does_not_run() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert not loopback.Started(process.pid, "").alive


def test_what_others_started_there_goes_on(tmp_path: Path) -> None:
    """As a site in earnest does, whose operator runs the same script."""
    federation = federation_of_sleepers(tmp_path, "exec sleep 600")
    own = environment(federation.site("north") / "flwr")
    with subprocess.Popen([federation.site("north") / "start.sh"], env=own) as process:
        loopback.stop(federation, "north")
        assert process.poll() is None
        process.kill()
