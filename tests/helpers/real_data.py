"""Data that is not part of the repository."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"


def needed(path: Path) -> Path:
    """A file or folder of the real data; the test is skipped where it is missing."""
    if not path.exists():
        pytest.skip(f"no real data: put {path.name} into {path.parent} (docs/how-to/data.md)")
    return path
