"""The last table of `run`, `demo` and `compare`: narrow, the first method on top, differences to none."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.helpers import made_up
from ttpfl.cli import app
from ttpfl.cli.output import plain
from ttpfl.report.tables import lines_by_case, terminal_words
from ttpfl.results.schema import COST

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
RESULTS = sorted((Path(__file__).resolve().parents[2] / "results").glob("*.json"))


def shown(words: list[Any], width: int = 80) -> list[str]:
    """What a terminal of this width shows; nothing may be cut off."""
    console = Console(width=width, file=io.StringIO(), color_system=None, markup=False)
    for part in words:
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert not any("…" in line for line in lines)
    return [line.rstrip() for line in lines]


def results(cases: tuple[str, ...] = ("",), seeds: int = 1, **by_method: list[float]) -> dict[str, Any]:
    found = made_up.with_accuracies(cases, seeds, **by_method)
    for run in found["runs"]:
        for entry in run["entries"]:
            entry["time"] = [2.0] * len(entry["accuracy"])
    return found


def test_the_highest_accuracy_is_on_top() -> None:
    """By hand: em gains 10 and 30 points, tent loses 10 at both clients."""
    found = results(none=[0.5, 0.5], tent=[0.4, 0.4], em=[0.6, 0.8])
    words = terminal_words(found)
    rows = [line.split() for line in shown(words) if line]
    start = next(n for n, row in enumerate(rows) if row[0] == "method")
    assert rows[start] == ["method", "accuracy", "vs.", "none", "95", "%", "interval", "harmed", "cost"]
    assert rows[start + 2 : start + 5] == [
        ["em", "70.00", "+20.00", "+10.00", "to", "+30.00", "0", "2.0x"],
        ["none", "50.00", DASH, DASH, DASH, "2.0x"],
        ["tent", "40.00", f"{MINUS}10.00", f"{MINUS}10.00", "to", f"{MINUS}10.00", "2", "2.0x"],
    ]
    said = " ".join(str(words[-1]).split())
    assert "mean over 2 clients" in said
    assert "A single seed gives no spread." in said
    assert COST in said
    assert "A single client" not in said


def test_all_clients_in_several_orders_are_below() -> None:
    """By hand: em gains 10 and 30 points if shuffled; as recorded, it loses 20 and gains 10."""
    found = results(("a", "b"), none=[0.5, 0.5], em=[0.6, 0.8])
    recorded = results(("a", "b"), none=[0.5, 0.5], em=[0.3, 0.6])
    for run, other in zip(found["runs"], recorded["runs"], strict=True):
        run["orders"] = {"recorded": other["entries"]}
    rows = [line.split() for line in shown(terminal_words(found)) if line]
    start = next(n for n, row in enumerate(rows) if row[:2] == ["method", "random"])
    assert rows[start] == ["method", "random", "harmed", "worst", "as", "recorded", "harmed", "worst"]
    assert rows[start + 2 : start + 4] == [
        ["em", "70.00", "0", "+10.00", "45.00", "2", f"{MINUS}20.00"],
        ["none", "50.00", DASH, DASH, "50.00", DASH, DASH],
    ]


def test_one_client_gives_a_dash_and_a_word() -> None:
    words = terminal_words(results(none=[0.5], em=[0.6]))
    assert ["em", "60.00", "+10.00", DASH, "0", "2.0x"] in [line.split() for line in shown(words)]
    assert " ".join(str(words[-1]).split()).count("A single client gives no interval.") == 1


@pytest.mark.parametrize("alarms", [[0, 2], [0, 0]])
def test_the_verdict_of_a_guard_is_at_the_end(alarms: list[int]) -> None:
    """By hand: estimates of 55 and 90 % are 5 and 10 points off."""
    found = results(none=[0.5, 0.5], em=[0.6, 0.8])
    assert "guard" not in str(terminal_words(found)[-1])
    guard = {"estimate": [0.55, 0.9], "low": [0.5, 0.8], "high": [0.6, 1.0], "plain": [0.5, 0.6]}
    found["runs"][0]["entries"][1]["guard"] = {**guard, "alarms": alarms, "stopped": [0, 0]}
    said = " ".join(shown(terminal_words(found)[-1:]))
    verdict = "stopped adaptation at 1 of 2 clients" if any(alarms) else "let all 2 clients adapt"
    assert f"The guard of em {verdict}." in said
    assert "it estimates an accuracy of 72.50 %, off by 7.50 points per client" in said


def test_seeds_have_a_spread() -> None:
    found = results(seeds=2, none=[0.5, 0.5], em=[0.6, 0.6])
    found["runs"][1]["entries"][1]["accuracy"] = [0.8, 0.8]
    words = terminal_words(found)
    assert any(line.split()[:2] == ["em", "70.00±14.14"] for line in shown(words) if line)
    assert "A single seed" not in str(words[-1])


def test_three_cases_stand_beside_each_other() -> None:
    """Differences are over the clients of all cases: 10, 10 and 40 points."""
    found = results(made_up.CASES, none=[0.4, 0.5], em=[0.5, 0.6])
    found["runs"][2]["entries"][1]["accuracy"] = [0.8, 0.9]
    text = shown(terminal_words(found))
    assert ["em", "55.00", "55.00", "85.00", "1.0", "+20.00"] in [line.split()[:6] for line in text]
    assert "over the clients of all cases" in " ".join(text)


def test_many_cases_stand_below_each_other() -> None:
    cases = tuple(f"batch={size}" for size in (1, 5, 10, 20, 50, 100, 200))
    text = [line.split() for line in shown(terminal_words(results(cases, none=[0.5, 0.6], em=[0.6, 0.7])))]
    for case in cases:
        first = text.index([case, "em", "65.00", "+10.00", "+10.00", "to", "+10.00", "0", "2.0x"])
        assert text[first + 1][:2] == ["none", "55.00"]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_committed_result_fits_a_terminal(path: Path) -> None:
    found = json.loads(path.read_text())
    text = shown(terminal_words(found))
    assert max(map(len, text)) <= 80
    labels = {entry["label"] for run in found["runs"] for entry in run["entries"]}
    words = " ".join(text)
    assert all(part in words for label in labels for part in label.split())


def test_a_comparison_without_none_has_no_difference() -> None:
    text = shown(terminal_words(results(em=[0.5, 0.5])))
    assert ["method", "accuracy", "cost"] in [line.split() for line in text]
    assert "Vs. none" not in " ".join(text)


def test_json_has_all_figures() -> None:
    found = results(("a", "b"), none=[0.5], em=[0.6])
    facts = plain(lines_by_case(found))
    assert list(facts) == ["a", "b"]
    em = facts["a"][1]
    assert (em["method"], em["interval"], em["harmed"], em["time"]) == ("em", None, 0, 2.0)
    assert {"accuracy", "difference", "worst_decile", "loss", "ece", "entropy", "extra_bytes"} < set(em)


def test_a_run_prints_and_tells_it(tmp_path: Path) -> None:
    words = ["run", "figure9-toy", "--preset", "smoke", "--out", str(tmp_path)]
    text = CliRunner().invoke(app, words)
    assert text.exit_code == 0, text.output
    assert "Accuracy in percent" in text.stdout
    facts = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert set(facts) == {"results", "report", "accuracy", "methods"}
