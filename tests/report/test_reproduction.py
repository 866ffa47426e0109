"""Results beside the paper's figures, by hand and as the command prints them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.report.test_tables import results
from ttpfl.cli import app
from ttpfl.errors import ReportError
from ttpfl.report.reproduction import as_data, reproduction
from ttpfl.report.tables import MARK


def found(**more: Any) -> dict[str, Any]:
    """Two seeds: em 69 and 71, none 60 twice, tent 59 and 61, and a method that the paper does not have."""
    made = results(("hybrid",), 2, none=(0.6, 0.6), em=(0.69, 0.71), tent=(0.59, 0.61), lame=(0.9, 0.9))
    paper = {"none": {"hybrid": [62.0, 0.0]}, "em": {"hybrid": [73.0, 1.0]}, "tent": {"hybrid": [50.0]}}
    return made | {"paper": paper} | more


def test_differences_in_points_and_in_deviations_by_hand() -> None:
    none, em, tent = as_data(found())["figures"]
    assert [row["method"] for row in (none, em, tent)] == ["none", "em", "tent"]
    assert [row["difference"] for row in (none, em, tent)] == pytest.approx([-2, -3, 10])
    # em has a deviation of sqrt(2) here and of 1 in the paper: their mean square is 1.5.
    assert em["deviations"] == pytest.approx(-3 / math.sqrt(1.5))
    assert math.isnan(none["deviations"])  # none varies neither here nor there
    assert math.isnan(tent["deviations"])  # the paper does not state a deviation


def test_with_one_seed_the_paper_s_deviation_counts_alone() -> None:
    made = results(("hybrid",), none=(0.6,)) | {"paper": {"none": {"hybrid": [62.0, 0.5]}}}
    (row,) = as_data(made)["figures"]
    assert row["deviations"] == pytest.approx(-4)


def test_the_order_counts_pairs_within_a_case() -> None:
    """By hand: in a, em is ahead of both as in the paper, and tent is not behind none; in b, a tie here."""
    made = results(("a", "b"), none=(0.6, 0.7), em=(0.7, 0.7), tent=(0.61, 0.5))
    made["paper"] = {
        "none": {"a": [62.0], "b": [60.0]},
        "em": {"a": [73.0], "b": [61.0]},
        "tent": {"a": [50.0], "b": [60.0]},  # equal in the paper: none and tent are no pair in b
    }
    assert as_data(made)["order"] == {"same": 2 + 1, "pairs": 3 + 2}
    assert "3 of 5 (60 %)" in reproduction([made])


def test_the_page_has_a_summary_and_a_table_for_each_result_with_figures_of_the_paper() -> None:
    text = reproduction([found(), results(("x",), none=(0.5,)), found()])
    assert text.count("**Test-time personalisation of a shallow CNN on CIFAR-10**") == 2
    assert text.count("| `cnn-cifar10` | cpu | hybrid | 60 | 2 | 3 | 0 | 0 of 1 | 2 of 3 (67 %) |") == 2
    assert "| em | hybrid | 73.00±1.00 | 70.00±1.41 | -3.00 | -2.4 |" in text
    assert "| tent | hybrid | 50.00 | 60.00±1.41 | +10.00 |  |" in text
    with pytest.raises(ReportError, match="the paper has no figures for these results"):
        reproduction([results(("x",), none=(0.5,))])


def test_the_command_updates_a_page_and_prints_data(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    file.write_text(json.dumps(found()))
    page.write_text(f"before\n{MARK}\nold\n{MARK}\nafter\n")
    done = CliRunner().invoke(app, ["results", "paper", str(file), "--into", str(page), "--json"])
    assert done.exit_code == 0, done.output
    assert page.read_text() == f"before\n{MARK}\n\n{reproduction([found()])}\n\n{MARK}\nafter\n"
    (content,) = json.loads(done.stdout)
    assert content["order"] == {"same": 2, "pairs": 3}
    assert content["figures"][0]["deviations"] is None
