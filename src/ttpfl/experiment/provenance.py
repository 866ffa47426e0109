"""What results were made with."""

import platform
from pathlib import Path

import numpy as np
import torch

from ttpfl._version import __version__
from ttpfl.data.parallel import cores


def versions() -> dict[str, str]:
    """Of what decides about figures."""
    return {
        "ttpfl": __version__,
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


def _cpu() -> str:
    return _line("/proc/cpuinfo", "model name")


def _line(path: str, name: str) -> str:
    """What follows `name:` in a file of /proc; empty where there is no such file."""
    if not Path(path).exists():
        return ""
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
