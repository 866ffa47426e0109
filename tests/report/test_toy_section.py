"""The section about the toy example shows what the example counted."""

from pathlib import Path

from ttpfl.experiment.recipe import read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.experiment.workshop import Workshop
from ttpfl.report.page import page
from ttpfl.report.sections.toy import _data, _situations, _steps
from ttpfl.toy import ALPHAS


def test_every_sample_is_in_every_histogram(tmp_path: Path) -> None:
    results = run(read("figure9-toy", "smoke"), Workshop(Store(tmp_path / "stages")), tmp_path)
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


def test_an_outline_goes_around_the_bars() -> None:
    assert _steps([0.0, 1.0, 2.0], [3, 4]) == [(0, 0), (0, 3), (1, 3), (1, 4), (2, 4), (2, 0)]
