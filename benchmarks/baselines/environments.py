"""Install each baseline into its own environment and run it there.

    python benchmarks/baselines/environments.py [--folder .baselines] [--again]

Torch is installed first, pinned to the version in `constraints.txt`. Otherwise each baseline's requirements
would choose a torch build, and the benchmark would compare torch versions.
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
FOLDER = REPOSITORY / ".baselines"


@dataclass(frozen=True)
class Baseline:
    """A script, its requirement from the package index, and a module that must import afterwards."""

    script: str
    requirement: str = ""
    module: str = ""


BASELINES = {
    "plain": Baseline("plain.py"),  # needs only the library's own dependencies
    "ttpfl": Baseline("ours.py"),
    "pfl": Baseline("pfl_baseline.py", "pfl==0.6.0", "pfl.model.pytorch"),
    "flower": Baseline("flower_baseline.py", "flwr[simulation]==1.41.0", "flwr.simulation, ray"),
}


class UnavailableError(Exception):
    """The baseline could not be installed or run; the message says why."""


def python_of(name: str, folder: Path = FOLDER, again: bool = False) -> Path:
    """The interpreter for a baseline, in an environment created on the first call.

    Raises:
        UnavailableError: the installation failed, now or (unless `again`) in an earlier attempt.
    """
    baseline = BASELINES[name]
    if not baseline.requirement:
        return Path(sys.executable)
    home = folder.absolute() / name
    python = home / "bin" / "python"
    outcome = home / "outcome.json"
    wanted = [torch_pin(), baseline.requirement]
    known = json.loads(outcome.read_text()) if outcome.exists() else {}
    if again or known.get("wanted") != wanted:
        known = {"wanted": wanted, "failure": install(baseline, home, python)}
        outcome.write_text(json.dumps(known))
    if known["failure"]:
        raise UnavailableError(f"{baseline.requirement} could not be installed: {known['failure']}")
    return python


def install(baseline: Baseline, home: Path, python: Path) -> str:
    """Create the environment. Return an empty string, or the reason for a failure."""
    venv.create(home, clear=True, with_pip=True)
    pins = home / "constraints.txt"
    pins.write_text(torch_pin() + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", pins]
    steps = (
        [*pip, torch_pin(), "numpy", "rich", "safetensors"],
        [*pip, baseline.requirement],
        [*pip, "--no-deps", "--editable", REPOSITORY],
        [python, "-c", f"import ttpfl, {baseline.module}"],
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
    """The most informative line: the first error of pip, or the last line of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if line.startswith("ERROR:")), lines[-1])


def run(name: str, *arguments: str, folder: Path = FOLDER) -> dict[str, object]:
    """Run a baseline with these command-line options and return the result it prints.

    Raises:
        UnavailableError: the baseline is not installed, or it failed.
    """
    # The plain loop runs in the caller's environment, where the library may not be installed.
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [python_of(name, folder), HERE / BASELINES[name].script, *arguments],
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
    options.add_argument("--again", action="store_true", help="reinstall, including what failed before")
    chosen = options.parse_args()
    for name in BASELINES:
        try:
            print(f"{name}: {python_of(name, chosen.folder, chosen.again)}")
        except UnavailableError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
