"""An environment of its own for each rival, and running it there.

    python benchmarks/rivals/environments.py [--folder .rivals] [--again]

Torch comes first, at the version of `constraints.txt`, and stays pinned: otherwise the rivals' own
wishes would decide which build of it is taken, and the comparison would be one of torch versions.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
FOLDER = REPOSITORY / ".rivals"


@dataclass(frozen=True)
class Rival:
    """A script, what it needs from the package index, and a module that must then import."""

    script: str
    requirement: str = ""
    module: str = ""


RIVALS = {
    "plain": Rival("plain.py"),  # needs nothing but what the library needs
    "ttpfl": Rival("ours.py"),
    "pfl": Rival("pfl_rival.py", "pfl==0.6.0", "pfl.model.pytorch"),
    "flower": Rival("flower_rival.py", "flwr[simulation]==1.41.0", "flwr.simulation, ray"),
}


class UnavailableError(Exception):
    """A rival that could not be installed; the message says why."""


def python_of(name: str, folder: Path = FOLDER, again: bool = False) -> Path:
    """The interpreter that runs a rival, in an environment that is made at the first call.

    Raises:
        UnavailableError: it could not be installed, now or (unless `again`) at an earlier attempt.
    """
    rival = RIVALS[name]
    if not rival.requirement:
        return Path(sys.executable)
    home = folder.absolute() / name
    python = home / "bin" / "python"
    outcome = home / "outcome.json"
    wanted = [torch_pin(), rival.requirement]
    known = json.loads(outcome.read_text()) if outcome.exists() else {}
    if again or known.get("wanted") != wanted:
        known = {"wanted": wanted, "failure": install(rival, home, python)}
        outcome.write_text(json.dumps(known))
    if known["failure"]:
        raise UnavailableError(f"{rival.requirement} could not be installed: {known['failure']}")
    return python


def install(rival: Rival, home: Path, python: Path) -> str:
    """Make the environment; empty if that went well, else the reason."""
    venv.create(home, clear=True, with_pip=True)
    pins = home / "constraints.txt"
    pins.write_text(torch_pin() + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", pins]
    steps = (
        [*pip, torch_pin(), "numpy", "rich", "safetensors"],
        [*pip, rival.requirement],
        [*pip, "--no-deps", "--editable", REPOSITORY],
        [python, "-c", f"import ttpfl, {rival.module}"],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            return complaint(done.stderr)
    return ""


def torch_pin() -> str:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def complaint(text: str) -> str:
    """The line that says most: pip begins with it, a traceback ends with it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if line.startswith("ERROR:")), lines[-1])


def run(name: str, *arguments: str, folder: Path = FOLDER) -> dict[str, object]:
    """What a rival printed about its run with these options of its command line.

    Raises:
        UnavailableError: it is not there, or it failed.
    """
    # Plain PyTorch runs in the caller's environment, where the library may not be installed.
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [python_of(name, folder), HERE / RIVALS[name].script, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"{name} failed: {complaint(done.stderr)}")
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--folder", type=Path, default=FOLDER)
    options.add_argument("--again", action="store_true", help="install anew, also what failed before")
    chosen = options.parse_args()
    for name in RIVALS:
        try:
            print(f"{name}: {python_of(name, chosen.folder, chosen.again)}")
        except UnavailableError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
