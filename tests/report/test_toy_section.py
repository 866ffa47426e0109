"""The section about the toy example shows what the example counted."""

import json
from pathlib import Path

from tests.helpers.page_reader import Element, read, table
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import read as read_recipe
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.experiment.toy import ALPHAS
from ttpfl.report.page import page
from ttpfl.report.sections.toy import _data, _situations, _steps

ROOT = Path(__file__).resolve().parents[2]


def test_every_sample_is_in_every_histogram(tmp_path: Path) -> None:
    results = run(
        read_recipe("figure9-toy", "smoke"), ExperimentContext(Store(tmp_path / "stages")), tmp_path
    )
    found = next(one["toy"] for one in results["runs"] if "toy" in one)
    assert "Why a rate may be negative" in page(results)
    situations = dict(_situations(found))
    assert len(situations) == 2 + len(ALPHAS)
    rows = _data(found["histograms"]["edges"], situations).rows
    for title in situations:
        assert sum(int(str(row[4])) for row in rows if row[0] == title) == found["samples"]
    # The sign of the output is the answer: what is right can be counted in the histogram.
    for line in found["alphas"]:
        mine = [row for row in rows if row[0] == f"outputs there, rate {line['alpha']:g}"]
        right = sum(row[4] for row in mine if (row[1] == "+") == (row[2] > -1e-9))
        assert abs(right / found["samples"] - line["sampled"]) < 1e-9


def test_findings_are_about_rates() -> None:
    found = json.loads((ROOT / "results" / "figure9-toy.json").read_text())
    document = read(page(found))
    best, learned, paper = (p.text.replace("\N{NO-BREAK SPACE}", " ") for p in findings(document))
    assert "Of 4 rates, \N{MINUS SIGN}0.5 is best: it classifies 92.65 %" in best
    assert "+3.21 points compared with no adaptation (rate 0)" in best
    assert "learned for the mean is \N{MINUS SIGN}0.75" in learned
    assert "The paper's order holds for 6 of 6 pairs of rates" in paper
    shown = table(document, "Comparison, alpha=1")["sampled"]["Paper"].text
    assert shown == "73.00"  # the paper gives no deviation


def findings(document: Element) -> list[Element]:
    return document.one("div", class_="findings").all("p")


def test_an_outline_goes_around_the_bars() -> None:
    assert _steps([0.0, 1.0, 2.0], [3, 4]) == [(0, 0), (0, 3), (1, 3), (1, 4), (2, 4), (2, 0)]
