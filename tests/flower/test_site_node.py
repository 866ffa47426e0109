"""How a site's processes connect to each other while other users are on its machine."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flwr.supernode.main import create_app

from tests.helpers.flower.hostile_runtime import hostile_runtime
from tests.helpers.flower.in_process import make_site
from ttpfl.errors import FederationError
from ttpfl.flower.create import create, free_port
from ttpfl.flower.folder import environment
from ttpfl.flower.over_socket import is_served, listen
from ttpfl.flower.site import runtime_socket
from ttpfl.flower.site_node import served


def test_a_foreign_listener_on_a_port_receives_nothing(tmp_path: Path) -> None:
    """Also by start scripts of older versions, which still name a port."""
    federation = create(tmp_path / "f", ["north"], port=free_port())  # where no superlink is
    folder = federation.site("north")
    runtime = runtime_socket(folder)
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = str(foreign.getsockname()[1])
        joined = [sys.executable, "-m", "ttpfl", "flower", "join", str(folder), "--port", port]
        with subprocess.Popen(
            [*joined, "--superlink", federation.address], env=environment(folder / "flwr")
        ) as site:
            try:
                until = time.monotonic() + 120
                while not is_served(runtime) and time.monotonic() < until and site.poll() is None:
                    time.sleep(0.1)
                assert is_served(runtime)
                assert stat.S_IMODE(runtime.stat().st_mode) == 0o600
                assert stat.S_IMODE(runtime.parent.stat().st_mode) == 0o700
                foreign.settimeout(2)  # several times as long as from one look for tasks to the next
                with pytest.raises(TimeoutError):
                    foreign.accept()
            finally:
                site.terminate()
                site.wait(60)
    assert not runtime.exists()


def test_a_message_cannot_bring_its_own_policy(tmp_path: Path) -> None:
    folder, theirs = tmp_path / "site", tmp_path / "theirs"
    theirs.mkdir()
    make_site(folder, "north", 0)
    (theirs / "site.toml").write_text('name = "x"\n[policy]\nmodels = ["subprocess:getoutput"]\n')
    path = runtime_socket(folder)
    path.parent.mkdir()
    with hostile_runtime(path, theirs / "site.toml", f"touch {theirs / 'ran'}") as asked:
        subprocess.run(
            [sys.executable, "-m", "ttpfl.flower.site_process", str(folder)],
            env={**os.environ, "TTPFL_TASK_TOKEN": "any"},
            timeout=300,
            check=False,
        )
    assert "pull-object" in asked  # the message came
    assert [found.name for found in theirs.iterdir()] == ["site.toml"]
    came, went = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    assert came["direction"] == "in"
    assert "subprocess:getoutput" in went["error"]


def test_a_site_runs_once_and_a_killed_one_is_no_hindrance(tmp_path: Path) -> None:
    path = runtime_socket(tmp_path)
    for _ in range(2):
        with served(create_app(), path):
            assert is_served(path)
            with pytest.raises(FederationError, match="stop this site before"), served(create_app(), path):
                pass
        assert not path.exists()
        listen(path).close()  # what a killed process leaves


def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "flwr").write_text("a file")
    match = r"cannot open the socket .*flwr/runtime\.sock: "
    with pytest.raises(FederationError, match=match), served(create_app(), runtime_socket(tmp_path)):
        pass
