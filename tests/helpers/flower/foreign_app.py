"""An app that is not ttpfl's, which leaves a mark wherever its code runs, and how a stranger starts it."""

import json
import subprocess
from pathlib import Path

from ttpfl.flower.control import program
from ttpfl.flower.folder import environment

PYPROJECT = """
[project]
name = "foreign"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "stranger"

[tool.flwr.app.components]
serverapp = "foreign.server:app"
clientapp = "foreign.client:app"

[tool.flwr.app.config]
"""

SERVER = """
import json, time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    Path({marks!r}, "server").touch()
    end = time.monotonic() + 300
    while len(nodes := list(grid.get_node_ids())) < 3 and time.monotonic() < end:
        time.sleep(0.5)
    sent = [Message(RecordDict(), node, "query") for node in nodes]
    replies = list(grid.send_and_receive(sent, timeout=300))
    said = [reply.error.reason if reply.has_error() else "" for reply in replies]
    Path({marks!r}, "replies.part").write_text(json.dumps(said))
    Path({marks!r}, "replies.part").rename(Path({marks!r}, "replies.json"))
"""

CLIENT = """
import os
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

Path({marks!r}, f"site-{{os.getpid()}}").touch()  # importing is enough
app = ClientApp()


@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""


class ForeignApp:
    """Its files, and the folder of its marks."""

    def __init__(self, folder: Path) -> None:
        self.source, self.marks, self._home = folder / "foreign", folder / "marks", folder / "stranger"
        (self.source / "foreign").mkdir(parents=True)
        self.marks.mkdir()
        (self.source / "pyproject.toml").write_text(PYPROJECT)
        (self.source / "foreign" / "__init__.py").touch()
        for name, text in (("server", SERVER), ("client", CLIENT)):
            (self.source / "foreign" / f"{name}.py").write_text(text.format(marks=str(self.marks)))

    def archive(self) -> bytes:
        """As `flwr run` sends it."""
        built = self._home / "built"
        built.mkdir(parents=True, exist_ok=True)
        command = [program("flwr"), "build", "--app", str(self.source)]
        subprocess.run(command, cwd=built, env=environment(self._home), capture_output=True, check=True)
        (path,) = built.glob("*.fab")
        return path.read_bytes()

    def run(self, address: str, authority: Path) -> str:
        """`flwr run` with nothing but the authority's certificate: why it failed; empty if it began."""
        self._home.mkdir(exist_ok=True)
        (self._home / "config.toml").write_text(
            '[superlink]\ndefault = "there"\n\n[superlink.there]\n'
            f'address = "{address}"\nroot-certificates = "{authority}"\n'
        )
        done = subprocess.run(
            [program("flwr"), "run", str(self.source), "there", "--format", "json"],
            env=environment(self._home),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        said = json.loads(done.stdout[done.stdout.index("{") :])
        return "" if said["success"] else said["error-message"]

    def has_run(self) -> set[str]:
        """Where its code was executed: "server", "site"."""
        return {path.name.split("-")[0] for path in self.marks.iterdir() if path.suffix == ""}

    def replies(self) -> list[str] | None:
        """What sites said to it: reasons of refusals, or nothing; None as long as it waits."""
        path = self.marks / "replies.json"
        return json.loads(path.read_text()) if path.exists() else None
