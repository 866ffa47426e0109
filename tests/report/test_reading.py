"""Files that cannot be made into a report are refused, with the place and the reason."""

import copy
import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers import made_up
from tests.helpers.page_reader import read
from ttpfl.cli import app
from ttpfl.errors import ReportError
from ttpfl.report import page, write_report

Change = Callable[[dict[str, Any]], object]


def small() -> dict[str, Any]:
    return made_up.results(cases=("hybrid",), methods=["none", "atp-batch"], clients=3, seeds=2, rounds=5)


def run_of(found: dict[str, Any], number: int = 0) -> Any:
    return found["runs"][number]


def atp_of(found: dict[str, Any]) -> Any:
    return run_of(found)["entries"][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("recipe"), r"results.json has no 'recipe'"),
        (lambda r: r["runs"].clear(), r"no runs"),
        (lambda r: r.update(format=3), r"format 3; this version reads 1 and 2"),
        (lambda r: r.update(runs={}), r"results.json.runs must be a list, got \{\}"),
        (
            lambda r: r["paper"]["none"].update(hybrid=[]),
            r"paper.none.hybrid must be \[mean\] or \[mean, sd\], got \[\]",
        ),
        (lambda r: run_of(r, 1).update(seed="1"), r"runs\[1\].seed must be an integer, got '1'"),
        (lambda r: run_of(r, 1).update(seed=True), r"seed must be an integer, got True"),
        (lambda r: run_of(r, 1).update(seed=0), r"case hybrid with seed 0 2 times"),
        (lambda r: run_of(r, 1)["entries"].pop(), r"case hybrid differ in entries: \['atp-batch'\]"),
        (lambda r: run_of(r)["clients"].clear(), r"runs\[0\] has no clients"),
        (lambda r: run_of(r)["clients"][1].update(id="target-0"), r"client target-0 2 times"),
        (
            lambda r: run_of(r)["clients"][1]["labels"].pop(),
            r"target-1 does not have one count for each class",
        ),
        (lambda r: atp_of(r).update(label="none"), r"entry none 2 times"),
        (lambda r: atp_of(r)["loss"].pop(), r"loss of atp-batch has 2 figures for 3 clients"),
        (lambda r: atp_of(r)["accuracy"].__setitem__(0, 61.5), r"of atp-batch is 61.5, not in 0 to 1"),
        (lambda r: atp_of(r)["accuracy"].__setitem__(0, float("nan")), r"is nan, not in 0 to 1"),
        (lambda r: atp_of(r)["rates"]["modules"][0].update(rate=1e999), r"conv1.weight is inf"),
    ],
)
def test_bad_results(change: Change, message: str) -> None:
    found = small()
    page(found)
    change(found)
    with pytest.raises(ReportError, match=message):
        page(found)


def places(value: Any) -> list[list[str | int]]:
    """The way to everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[key, *rest] for key, item in items for rest in ([], *places(item))]


FOUND = small()
ODD = [None, True, -1, 0, 2.5, float("nan"), float("inf"), "", "odd", [], [None], {}, {"odd": None}]


@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(places(FOUND)), odd=st.sampled_from(ODD))
def test_an_odd_value_is_shown_or_refused_but_never_breaks_the_page(place: list[Any], odd: Any) -> None:
    found = copy.deepcopy(FOUND)
    *way, last = place
    reduce(lambda inside, key: inside[key], way, found)[last] = odd
    try:
        shown = page(found)
    except ReportError:
        return
    assert read(shown).one("main").text.strip()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: image.update(rgb="&"), "not base64"),
        (lambda image: image.update(size=[32, 31]), "3072 bytes, but its size 32 x 31 needs 2976"),
        (lambda image: image.update(size=[32]), "but its size 0 x 0"),
        (lambda image: image.pop("after"), r"images\[0\] has no 'after'"),
    ],
)
def test_bad_samples(change: Change, message: str) -> None:
    found = small()
    samples = made_up.samples(found)
    change(samples["runs"][0]["clients"][0]["images"][0])
    with pytest.raises(ReportError, match=message):
        page(found, samples)


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


def test_the_command_takes_a_file_or_its_folder(tmp_path: Path) -> None:
    found = small()
    (tmp_path / "results.json").write_text(json.dumps(found))
    assert run(tmp_path) == f"{tmp_path / 'report.html'} written\n"
    without = (tmp_path / "report.html").read_text()
    assert without == page(found)
    (tmp_path / "samples.json").write_text(json.dumps(made_up.samples(found)))
    run(tmp_path / "results.json", "--out", tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == page(found, made_up.samples(found)) != without
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert write_report(tmp_path / "results.json") == tmp_path / "report.html"


def test_several_results_in_a_folder_have_reports_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(small()))
        assert write_report(tmp_path / f"{name}.json") == tmp_path / f"{name}.html"
    (tmp_path / "samples.json").write_text(json.dumps(made_up.samples(small())))  # of another run
    write_report(tmp_path / "one.json")
    assert (tmp_path / "one.html").read_text() == page(small())


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    assert "results.json does not exist: name a results.json, or the folder" in run(tmp_path, code=1)
    (tmp_path / "results.json").write_text("{")
    assert "is not valid JSON" in run(tmp_path, code=1)
    (tmp_path / "results.json").write_text('{"format": 1, "rows": []}')
    message = run(tmp_path, code=1)
    assert "results.json has no 'recipe'" in message
    assert str(tmp_path) in message
    assert message.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
