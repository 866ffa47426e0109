"""Every script in examples/ runs, on the smallest settings that make sense."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

TINY = {"rounds": 1, "clients": 8, "samples": 60, "patients": 40, "lines": 40}
"""Arguments by their names: every example takes some of them."""


@pytest.mark.filterwarnings("ignore::ttpfl.TtpflWarning")  # after one round, a model may well be at chance
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_adaptation_does(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(path))["main"]
    main(**{name: TINY[name] for name in inspect.signature(main).parameters})
    output = capsys.readouterr().out
    shares = [float(number) for number in re.findall(r"([\d.]+)%", output)]
    assert len(shares) >= 2  # before and after
    assert all(0 <= share <= 100 for share in shares)
    assert "no adaptation" in output


def test_the_list_of_examples_is_complete() -> None:
    said = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `(.*)`", said, re.M) == [path.name for path in EXAMPLES]
    assert EXAMPLES
