"""What the repository shows was really run: README's tables follow from the files in results/."""

import json
from pathlib import Path

import pytest

from ttpfl.experiment.tables import load_all, markdown, replaced
from ttpfl.report.page import page

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))


def test_readme_shows_the_results() -> None:
    readme = (ROOT / "README.md").read_text()
    tables = "\n\n".join(markdown(results) for results in load_all([ROOT / "results"]))
    assert readme == replaced(readme, tables), "run: ttpfl results table results --into README.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_result_names_what_it_was_made_of_and_can_be_reported(path: Path) -> None:
    results = json.loads(path.read_text())
    assert results["recipe"]["command"].startswith("ttpfl run ")
    assert {"ttpfl", "torch", "numpy", "python", "machine", "seconds"} <= set(results["made"])
    for run in results["runs"]:
        for entry in run["entries"]:
            assert len(entry["accuracy"]) == len(run["clients"])
    assert results["recipe"]["title"] in page(results, None)
