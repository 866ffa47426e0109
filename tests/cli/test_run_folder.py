"""Where `ttpfl run` puts results, and what it says about those that were there."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from ttpfl.cli import app


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["run", *words], prog_name="ttpfl")
    assert result.exit_code == 0, result.stderr
    return result


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
