"""Sections on orders of samples, groups and rounds, compared with the numbers of a results file."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.page_reader import read as read_page
from ttpfl.report.sections.breakdown import breakdown
from ttpfl.report.sections.curves import curves
from ttpfl.report.sections.streams import streams
from ttpfl.report.study import study
from ttpfl.results.files import load

PERSONS = Path(__file__).resolve().parents[2] / "results" / "har-persons.json"


def test_all_clients_of_all_cases_together() -> None:
    section = streams(study(load(PERSONS)))
    assert section is not None
    first, *others = read_page(section.body).all("table")
    assert len(others) == 5
    runs = json.loads(PERSONS.read_text())["runs"]
    rows = {
        row.all("th")[0].text.strip(): [cell.text for cell in row.all("td")] for row in first.all("tr")[1:]
    }
    assert rows["none"][1:3] == ["\N{EN DASH}"] * 2
    for number, label in enumerate(["none", "bn-adapt", "shot"]):
        means = []
        for place, entries in enumerate(
            ([run["entries"] for run in runs], [run["orders"]["recorded"] for run in runs])
        ):
            after = 100 * np.concatenate([one[number]["accuracy"] for one in entries])
            before = 100 * np.concatenate([one[0]["accuracy"] for one in entries])
            means.append(after.mean())
            shown = rows[label][3 * place : 3 * place + 3]
            assert float(shown[0]) == pytest.approx(after.mean(), abs=0.0051)
            if label != "none":
                assert int(shown[1]) == (after < before).sum()
                assert float(shown[2].replace("\N{MINUS SIGN}", "-")) == pytest.approx(
                    (after - before).min(), abs=0.0051
                )
        change = float(rows[label][-1].replace("\N{MINUS SIGN}", "-"))
        assert change == pytest.approx(means[1] - means[0], abs=0.0051)


def test_groups_are_in_the_order_of_their_numbers() -> None:
    section = breakdown(study(load(PERSONS)))
    assert section is not None
    header = read_page(section.body).all("table")[0].all("tr")[0]
    assert [cell.text.split()[0] for cell in header.all("th")[1:]] == ["2", "4", "12", "15", "22", "23"]


def test_rounds_are_whole_numbers() -> None:
    section = curves(study(load(PERSONS)))
    assert section is not None
    charts = read_page(section.body).all("svg")
    ticks = [
        tick.text for chart in charts for tick in chart.all("text", class_="middle") if tick.text != "round"
    ]
    assert len(ticks) > 100
    assert all(tick.isdecimal() for tick in ticks)
