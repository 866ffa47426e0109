"""The picture in the README: every client before and after."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ttpfl.errors import ReportError
from ttpfl.report.picture import GAIN, HARM, picture

ROOT = Path(__file__).resolve().parents[2]
PERSONS = json.loads((ROOT / "results" / "har-persons.json").read_text())
DEMO = json.loads((ROOT / "results" / "demo.json").read_text())


def test_the_committed_picture_is_made_from_the_results() -> None:
    committed = (ROOT / "docs" / "images" / "clients.svg").read_text("utf-8")
    options = "--method atp-plus-online --out docs/images/clients.svg"
    found = picture(PERSONS, "atp-plus-online")
    assert committed == found + "\n", f"run: ttpfl results picture results/har-persons.json {options}"


def test_every_client_has_a_dot_where_its_accuracy_is() -> None:
    entries = {entry["label"]: entry["accuracy"] for entry in DEMO["runs"][0]["entries"]}
    worse = sum(a < b for b, a in zip(entries["none"], entries["atp-online"], strict=True))
    circles = [
        circle.attrib for circle in ET.fromstring(picture(DEMO)).iter("{http://www.w3.org/2000/svg}circle")
    ]
    fills = [circle["fill"] for circle in circles[3:]]  # after those of the legend
    assert fills.count("none") == len(entries["none"])
    assert (fills.count(GAIN), fills.count(HARM)) == (len(entries["none"]) - worse, worse)
    heights = sorted(float(circle["cy"]) for circle in circles[3:] if circle["fill"] != "none")
    order = sorted(entries["atp-online"], reverse=True)
    slope = (heights[-1] - heights[0]) / (order[0] - order[-1])
    assert [heights[0] + slope * (order[0] - a) for a in order] == pytest.approx(heights, abs=0.02)


def test_a_method_that_was_not_run_is_named() -> None:
    with pytest.raises(ReportError, match=r"no method 'atp' to draw; it has: none, bn-adapt"):
        picture(DEMO, "atp")


def test_cases_with_clients_of_their_own_are_drawn_together() -> None:
    """Thirty persons in five folds; where cases share clients, the first case alone."""
    found = picture(PERSONS)
    assert "at 30 new clients" in found
    names = {text.text for text in ET.fromstring(found).iter("{http://www.w3.org/2000/svg}text")}
    assert {client["id"] for run in PERSONS["runs"] for client in run["clients"]} <= names
    shifts = json.loads((ROOT / "results" / "table5-cifar10-cnn-cpu.json").read_text())
    assert "at 60 new clients" in picture(shifts)
