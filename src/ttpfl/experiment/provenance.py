"""The versions and the machine that produce results."""

import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from ttpfl._version import __version__
from ttpfl.util.parallel import cores


def versions() -> dict[str, str]:
    """Versions of the libraries that affect results, and the commit if run from the repository."""
    return {
        "ttpfl": __version__,
        **_commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def machine() -> str:
    """The processor, cores and, if known, memory; nothing that identifies the machine."""
    parts = [_line("/proc/cpuinfo", "model name") or platform.machine(), f"{cores()} cores"]
    if memory := _line("/proc/meminfo", "MemTotal"):
        parts.append(f"{round(int(memory.split()[0]) / 2**20)} GB")
    return ", ".join(parts)


@lru_cache(maxsize=1)
def _commit() -> dict[str, str]:
    """The commit, with "-dirty" if files differ from it; empty without a repository or git."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return {}
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]  # the hash, without tags
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": result.stdout.strip()}


def _line(path: str, name: str) -> str:
    """The value of `name` in a file of /proc; empty if there is no such file."""
    if not Path(path).exists():
        return ""
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
