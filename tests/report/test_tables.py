"""Tables of results, and the command that makes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.helpers import made_up
from ttpfl.cli import app
from ttpfl.errors import ReportError
from ttpfl.report.tables import MARK, accuracies, markdown
from ttpfl.results.files import load_all


def results(cases: tuple[str, ...], seeds: int = 1, **by_method: tuple[float, ...]) -> dict[str, Any]:
    """One accuracy for each seed, or for each case if there is a single seed."""
    found = made_up.results(cases, list(by_method), clients=2, seeds=seeds) | {"paper": {}}
    for number, run in enumerate(found["runs"]):
        for entry in run["entries"]:
            entry["accuracy"] = 2 * [by_method[entry["label"]][number]]
    return found


def rows(found: dict[str, Any]) -> list[str]:
    return [line for line in markdown(found).splitlines() if line.startswith("|")]


def test_mean_and_spread_over_seeds_beside_the_paper() -> None:
    found = results(("label",), seeds=2, none=(0.5, 0.6), em=(0.7, 0.7))
    found["paper"] = {"em": {"label": [76.23, 0.32]}, "tent": {"label": [50.0]}}
    assert rows(found) == [
        "| method | label |",  # a single case has places, not average ranks
        "| --- | ---: |",
        "| none | 55.00±7.07 |",
        "| em | 70.00±0.00 (76.23) |",
    ]
    assert accuracies(found)["none"] == {"label": (pytest.approx(55), pytest.approx(50**0.5))}
    assert "60 rounds of training, 2 seeds, 114 minutes on 2 cores, 8 GB; the paper's" in markdown(found)


def test_what_was_changed_is_said() -> None:
    found = results(("a|b",), none=(0.5,))
    assert rows(found)[0] == r"| method | a\|b |"
    said = [f"own choice of {what}" for what in ("methods", "cases", "methods and lines")]
    for changes, words in zip(
        ({"methods": []}, {"only": []}, {"entries": [], "methods": []}), said, strict=True
    ):
        found["recipe"]["set"] = {**changes, "seeds": [0]}
        assert f"`seeds=[0]`, {words}, 60 rounds" in markdown(found)


def test_ranks_are_also_among_the_methods_of_the_paper() -> None:
    """By hand: em is first and second of three; of the two that the paper has, none is always last."""
    found = results(("a", "b"), none=(0.5, 0.5), em=(0.7, 0.6), tent=(0.6, 0.7))
    assert rows(found)[2:] == [
        "| none | 50.00 | 50.00 | 3.0 |",
        "| em | 70.00 | 60.00 | 1.5 |",
        "| tent | 60.00 | 70.00 | 1.5 |",
    ]
    found["paper"] = {"none": {"a": [60.0], "b": [60.0]}, "em": {"a": [50.0], "b": [70.0]}}
    assert rows(found) == [
        "| method | a | b | average rank | rank among the paper's |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| none | 50.00 (60.00) | 50.00 (60.00) | 3.0 | 2.0 (1.5) |",
        "| em | 70.00 (50.00) | 60.00 (70.00) | 1.5 | 1.0 (1.5) |",
        "| tent | 60.00 | 70.00 | 1.5 |  |",
    ]
    found["paper"]["tent"] = {"a": [55.0], "b": [80.0]}  # the paper has all: one column says it
    assert rows(found)[0].endswith("| b | average rank |")
    assert rows(found)[3].endswith("| 1.5 (2.5) |")


def test_a_method_that_is_not_in_every_case_is_not_ranked() -> None:
    found = results(("a", "b"), none=(0.5, 0.5), em=(0.7, 0.6), tent=(0.6, 0.7))
    found["runs"][1]["entries"].pop()
    assert rows(found)[4] == "| tent | 60.00 |  |  |"
    assert rows(found)[2] == "| none | 50.00 | 50.00 | 2.0 |"


def test_folders_of_files_and_of_runs(tmp_path: Path) -> None:
    found = results(("a",), none=(0.5,))
    for name in ("files/b.json", "files/a.json", "runs/x/results.json", "runs/y/results.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        content = found | {"recipe": found["recipe"] | {"title": name}}
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "files/samples.json").write_text("{}")
    (tmp_path / "runs/x/manifest.json").write_text("{}")

    def titles(*paths: str) -> list[str]:
        return [found["recipe"]["title"] for found in load_all(tmp_path / path for path in paths)]

    assert titles("files") == ["files/a.json", "files/b.json"]
    assert titles("runs") == ["runs/x/results.json", "runs/y/results.json"]
    assert titles("runs/y", "files/b.json", "runs/x/results.json") == [
        "runs/y/results.json",
        "files/b.json",
        "runs/x/results.json",
    ]
    with pytest.raises(ReportError, match="nothing does not exist"):
        titles("nothing")


def table(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["results", "table", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


def test_the_command_writes_into_a_page(tmp_path: Path) -> None:
    found, page = results(("a",), none=(0.5,)), tmp_path / "page.md"
    (tmp_path / "results.json").write_text(json.dumps(found))
    assert table(tmp_path) == markdown(found) + "\n"
    page.write_text(f"before\n{MARK}\nold\n{MARK}\nafter\n")
    table(tmp_path, "--into", page)
    assert page.read_text() == f"before\n{MARK}\n\n{markdown(found)}\n\n{MARK}\nafter\n"


def test_a_page_stays_as_it_is_where_no_results_are_found(tmp_path: Path) -> None:
    page, empty, other = tmp_path / "page.md", tmp_path / "empty", tmp_path / "compared"
    page.write_text(f"{MARK}\nold\n{MARK}\n")
    empty.mkdir()
    other.mkdir()
    (other / "results.json").write_text('{"format": 1, "rows": []}')  # as `ttpfl compare` has them
    assert "empty contains no results: name a results.json" in table(empty, "--into", page, code=1)
    message = table(other, "--into", page, code=1)
    assert f"{other / 'results.json'} has no 'recipe': is it the file of another command" in message
    assert "old" in page.read_text()
