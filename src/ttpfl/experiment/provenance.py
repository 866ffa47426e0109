"""What results were made with."""

import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from ttpfl._version import __version__
from ttpfl.util.parallel import cores


def versions() -> dict[str, str]:
    """Of what decides about figures; the commit, too, where the library runs from its repository."""
    return {
        "ttpfl": __version__,
        **_commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def machine() -> str:
    """The processor, cores and memory, where the system tells; nothing that identifies the machine."""
    told = [_cpu() or platform.machine(), f"{cores()} cores"]
    memory = _line("/proc/meminfo", "MemTotal")
    if memory:
        told.append(f"{round(int(memory.split()[0]) / 2**20)} GB")
    return ", ".join(told)


@lru_cache(maxsize=1)
def _commit() -> dict[str, str]:
    """The commit, with "-dirty" where files differ from it; nothing without a repository, or without git."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return {}
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]  # no tags: the hash itself
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": found}


def _cpu() -> str:
    return _line("/proc/cpuinfo", "model name")


def _line(path: str, name: str) -> str:
    """What follows `name:` in a file of /proc; empty where there is no such file."""
    if not Path(path).exists():
        return ""
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
