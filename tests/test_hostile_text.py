"""Names and reasons from elsewhere are text and nothing else: on terminals, on pages, in spreadsheets."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from typer.testing import CliRunner

from ttpfl.cli import app
from ttpfl.cli.messages import say
from ttpfl.cli.output import print_result
from ttpfl.cli.predictions import writer
from ttpfl.folder_stream import Prediction
from ttpfl.report.tables import markdown
from ttpfl.util.checksum import sealed
from ttpfl.util.printable import printable

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = "north\x1b[2J\x1b]0;title\x07\x9b31m\u202e\x7f"
HIDDEN = "\x1b\x07\x9b\u202e\x7f"


def results(**recipe: str) -> dict[str, Any]:
    found = json.loads((ROOT / "results/figure9-toy.json").read_text())
    del found["checksum"]
    found["recipe"] |= recipe
    return sealed(found)


def test_terminals_get_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("site")
    table.add_row(HOSTILE)
    say(f"error: {HOSTILE}")
    print_result({"site": HOSTILE}, f"site {HOSTILE}", table, as_json=False)
    print_result({"site": HOSTILE}, as_json=True)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "north" in text
        assert not set(text) & set(HIDDEN)
    assert json.loads(shown.out[shown.out.index("{") :]) == {"site": HOSTILE}  # programs get it as it is


def test_a_table_looks_the_same_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("site", "accuracy", box=None)
    table.add_row("north", "71.5")
    print_result(None, table, as_json=False)
    assert capsys.readouterr().out.split() == ["site", "accuracy", "north", "71.5"]


def test_tables_of_results_have_no_markup() -> None:
    text = markdown(results(title="<img src=x onerror=alert(1)>\n<!-- results -->", name="a<b>|c"))
    assert "<" not in text
    assert "**&lt;img src=x onerror=alert(1)&gt; &lt;!-- results --&gt;**" in text
    assert "`a&lt;b&gt;|c`" in text


def test_halves_of_surrogate_pairs_in_results(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(results(title="a\ud800b", question="\udc80")))
    for command in (
        ["report", str(tmp_path)],
        ["results", "table", str(tmp_path)],
        ["results", "table", str(tmp_path), "--json"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert "a\\ud800b" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u2060", "\U000e0041", "\ufeff", "\u2028"])
def test_what_cannot_be_seen_is_written_out(hidden: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(f"no{hidden}rth").isascii()
    print_result({"site": f"no{hidden}rth"}, as_json=True)
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert json.loads(shown) == {"site": f"no{hidden}rth"}


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\n=1+1",
    "\n1",
    " =1+1",
    "\uff1d1",
    "\uff0b1",
]


@pytest.mark.parametrize("name", [*FORMULAS, "\uff0d1", "\uff201", "\u00a0=1"])
def test_no_cell_is_a_formula(name: str) -> None:
    text = io.StringIO()
    write = writer(text, (name, "dog"), probabilities=True, as_json=False)
    write(Prediction(name, name, 0.75, (0.75, 0.25)), None)
    head, row = csv.reader(io.StringIO(text.getvalue()))
    assert head == ["path", "class", "confidence", f"'{name}", "dog"]
    assert row == [f"'{name}", f"'{name}", "0.750000", "0.750000", "0.250000"]
    lines = io.StringIO()
    writer(lines, (name, "dog"), probabilities=False, as_json=True)(
        Prediction(name, name, 0.75, (0.75, 0.25)), None
    )
    assert json.loads(lines.getvalue())["path"] == name
