"""`earlier_comparison.json` is what `ttpfl compare` wrote when it had a format of its own: still readable."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.helpers.page_reader import read, table
from ttpfl.cli import app
from ttpfl.errors import ReportError
from ttpfl.report import page
from ttpfl.report.tables import lines_by_case
from ttpfl.results.files import checked_results, load

FILE = Path(__file__).with_name("earlier_comparison.json")
PRINTED = {  # by the version that wrote it: accuracy, difference to none, harmed, cost
    "none": (5.56, 0.0, 0, 1.3),
    "em": (2.78, -2.78, 2, 1.1),
    "tent": (11.67, 6.11, 0, 3.2),
    "atp-online": (5.56, 0.0, 0, 5.4),
}


def test_its_figures_are_those_that_were_printed() -> None:
    (lines,) = lines_by_case(load(FILE)).values()
    shown = {
        line.method: (round(line.accuracy, 2), round(line.difference, 2), line.harmed, round(line.time, 1))
        for line in lines
    }
    assert shown == PRINTED


def test_it_has_a_page_and_a_table() -> None:
    old = json.loads(FILE.read_text())
    cells = table(read(page(old)), "Comparison")
    assert {label: cells[label]["Accuracy"].text for label in cells} == {
        label: f"{accuracy:.2f}" for label, (accuracy, *_) in PRINTED.items()
    }
    result = CliRunner().invoke(app, ["results", "table", str(FILE)])
    assert result.exit_code == 0, result.output
    assert "| tent | 11.67 |" in result.stdout
    (run,) = load(FILE)["runs"]
    tried = {entry["label"]: entry["tuning"] and len(entry["tuning"]["table"]) for entry in run["entries"]}
    assert tried == {"none": None, "em": 5, "tent": 5, "atp-online": None}


def test_without_a_checksum_it_is_read_and_with_a_wrong_one_refused() -> None:
    old = json.loads(FILE.read_text())
    sealed = checked_results(old)
    before = {**old, "format": 1}
    del before["checksum"]
    assert checked_results(before) == sealed
    old["rows"][0]["accuracy"] = 1.0
    with pytest.raises(ReportError, match="checksum does not match"):
        checked_results(old)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda old: old["rows"][2].pop("cost"), r"no version of `ttpfl compare` wrote: KeyError\(.cost.\)"),
        (lambda old: old["rows"][2].pop("accuracy"), r"accuracy\[2\] must be a number, got None"),
        (lambda old: old["rows"][2].update(loss="low"), r"loss\[2\] must be a number, got 'low'"),
        (lambda old: old["rows"].pop(), "accuracy of atp-online has 2 figures for 3 clients"),
        (lambda old: old["rows"].clear(), "has no entries"),
        (lambda old: old["setting"].pop("clients"), r"KeyError\(.clients.\)"),
        (lambda old: old.update(rows=[5]), "no version of `ttpfl compare` wrote"),
        (lambda old: old["tuning"].update(em=[]), r"tuning must be a table .*, got \[\]"),
    ],
)
def test_a_bad_one_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    old = {**copy.deepcopy(json.loads(FILE.read_text())), "format": 1}
    del old["checksum"]
    change(old)
    with pytest.raises(ReportError, match=message):
        checked_results(old)


def test_reports_do_not_wait_for_torch() -> None:
    program = "import json, sys, ttpfl.report.tables, ttpfl.report.picture, ttpfl.report as report; "
    program += "report.page(json.loads(open(sys.argv[1]).read())); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program, str(FILE)], capture_output=True, text=True)
    assert found.stdout == "False\n", found.stderr


def test_whatever_is_in_it_is_read_or_refused() -> None:
    old = {**json.loads(FILE.read_text()), "format": 1}
    del old["checksum"]
    for key, part in (("setting", old["setting"]), *(("rows", row) for row in old["rows"][:2])):
        for name in part:
            for odd in (None, -1, "odd", [], {"odd": [1]}):
                changed = copy.deepcopy(old)
                place = changed[key] if key == "setting" else changed[key][old[key].index(part)]
                place[name] = odd
                with suppress(ReportError):
                    page(changed)
