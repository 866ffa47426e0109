"""Where `ttpfl run` puts results, and what it says about those that were there."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ttpfl.cli import app
from ttpfl.experiment import recipe as recipes


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["run", *words], prog_name="ttpfl")
    assert result.exit_code == 0, result.stderr
    return result


def told(*words: object) -> Any:
    """What a command answers with `--json`, and nothing else."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"], prog_name="ttpfl")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


def seeds(folder: Path) -> dict[str, set[int]]:
    files = sorted(folder.glob("*/results.json"))
    return {file.parent.name: {one["seed"] for one in json.loads(file.read_text())["runs"]} for file in files}


def test_results_of_other_changes_are_kept(tmp_path: Path) -> None:
    for changes in ([], ["--set", "seeds=[1]"], ["--set", "seeds=[2]"], ["--set", "seeds=[1]"]):
        assert "replaced" not in run("figure9-toy", "--out", str(tmp_path), *changes).stderr
    found = seeds(tmp_path)
    assert found.pop("figure9-toy-paper") == {0}
    assert sorted(found.values(), key=str) == [{1}, {2}]
    assert all(name.startswith("figure9-toy-paper-") for name in found)


def test_a_recipe_that_was_edited_replaces_its_results_with_a_word(tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    told = []
    for seed in (0, 0, 1):
        recipe.write_text(f'kind = "toy"\nseeds = [{seed}]\n')
        told.append(run(str(recipe), "--out", str(tmp_path / "runs")).stderr)
    assert ["will be replaced" in text for text in told] == [False, False, True]
    assert seeds(tmp_path / "runs") == {"own-paper": {1}}


def test_damaged_results_are_made_again(tmp_path: Path) -> None:
    results = tmp_path / "figure9-toy-paper" / "results.json"
    results.parent.mkdir()
    results.write_text('{"half')
    assert "will be replaced" in run("figure9-toy", "--out", str(tmp_path)).stderr
    assert seeds(tmp_path) == {"figure9-toy-paper": {0}}


def test_what_is_made_of_results_is_told_to_programs(tmp_path: Path) -> None:
    ran = told("run", "figure9-toy", "--out", tmp_path)
    page = told("report", ran["results"], "--out", tmp_path / "page.html")["report"]
    assert Path(page).read_text() == Path(ran["report"]).read_text()
    (table,) = told("results", "table", tmp_path)
    assert table["name"] == "figure9-toy"
    assert table["accuracy"] == ran["accuracy"]
    assert table["paper"]["sampled"]["alpha=-0.5"] == [92.0]  # Figure 9 of the paper
    (tmp_path / "page.md").write_text("<!-- results -->\n<!-- results -->\n")
    assert told("results", "table", ran["results"], "--into", tmp_path / "page.md") == [table]
    assert "| sampled |" in (tmp_path / "page.md").read_text()
    picture = tmp_path / "picture.svg"
    demo = Path(__file__).resolve().parents[2] / "results" / "demo.json"
    assert told("results", "picture", demo, "--out", picture) == {"picture": str(picture)}
    assert picture.read_text().startswith("<svg")


def test_the_demo_is_told_to_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a recipe in its place that takes no minutes."""
    (tmp_path / "demo.toml").write_text('kind = "toy"\ntitle = "quick"\n')
    monkeypatch.setattr(recipes, "folder", lambda: tmp_path)
    assert set(told("demo", "--out", tmp_path / "runs")) == {"results", "report", "accuracy", "methods"}
