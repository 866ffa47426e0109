"""Two hundred damaged files of each kind; `python -m tests.fuzz` takes any number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNT = int(os.environ.get("TTPFL_FUZZ_COUNT", "200"))
FINE = {"refused", "same", "damage left out", "accepted as written"}


def fuzz(count: int, *words: str) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-m", "tests.fuzz", "--count", str(count), "--json", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def check(found: dict[str, dict[str, int]], count: int) -> None:
    for kind, verdicts in found.items():
        assert verdicts.keys() <= FINE, (kind, verdicts)
        assert sum(verdicts.values()) == count
        assert verdicts.keys() != {"same"} or kind.startswith("stage"), f"{kind}: nothing was ever noticed"


def test_some_damage_to_what_results_rest_on() -> None:
    check(fuzz(25, "--kind", "stage", "--kind", "rows", "--kind", "results", "--kind", "manifest"), 25)


@pytest.mark.slow
def test_damage_of_every_kind() -> None:
    found = fuzz(COUNT)
    assert len(found) >= 15
    check(found, COUNT)
