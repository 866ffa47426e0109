"""The figures on the page are those of the results."""

import base64
import copy
import io
import re
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.helpers import made_up
from tests.helpers.page_reader import Element, data, read, table
from ttpfl.report import page
from ttpfl.report.placing import free_sides, spread_out
from ttpfl.report.scale import Scale, covering
from ttpfl.report.sections.curves import _running_means
from ttpfl.report.study import study

MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return made_up.results()


@pytest.fixture(scope="module")
def text(found: dict[str, Any]) -> str:
    return page(found, made_up.samples(found))


@pytest.fixture(scope="module")
def document(text: str) -> Element:
    return read(text)


def number(text: str) -> float:
    return float(text.replace(MINUS, "-"))


def accuracies(found: dict[str, Any], case: str, label: str) -> list[list[float]]:
    """By seed and client, in percent."""
    return [
        [100 * a for a in entry["accuracy"]]
        for run in found["runs"]
        for entry in run["entries"]
        if (run["case"], entry["label"]) == (case, label)
    ]


def pooled(found: dict[str, Any], case: str, label: str) -> list[float]:
    return [a for seed in accuracies(found, case, label) for a in seed]


@pytest.mark.parametrize("case", made_up.CASES)
def test_the_table_of_a_case(found: dict[str, Any], document: Element, case: str) -> None:
    rows = table(document, f"Comparison, {case}")
    assert list(rows) == made_up.TEN
    base = pooled(found, case, "none")
    for label, cells in rows.items():
        by_seed = accuracies(found, case, label)
        values = pooled(found, case, label)
        shown, _, spread = cells["Accuracy"].text.partition(" ±")
        assert number(shown) == pytest.approx(mean(values), abs=0.006)
        assert number(spread) == pytest.approx(stdev([mean(seed) for seed in by_seed]), abs=0.006)
        assert number(cells["Worst tenth"].text) == pytest.approx(mean(sorted(values)[:2]), abs=0.006)
        paper = made_up.PAPER[label][made_up.CASES.index(case)]
        assert cells["Paper"].text == f"{paper:.2f} ±0.30"
        assert number(cells["Vs. paper"].text) == pytest.approx(mean(values) - paper, abs=0.006)
        if label == "none":
            continue
        changes = [a - b for a, b in zip(values, base, strict=True)]
        assert number(cells["Vs. none"].text) == pytest.approx(mean(changes), abs=0.006)
        assert int(cells["Harmed"].text) == sum(change < 0 for change in changes)
        low, high = map(number, cells["95 % interval"].text.split(" to "))
        error = 1.96 * stdev(changes) / len(changes) ** 0.5
        assert (low, high) == (
            pytest.approx(mean(changes) - error, abs=0.4),
            pytest.approx(mean(changes) + error, abs=0.4),
        )
        verdict = "gain" if low > 0 else "harm" if high < 0 else None
        assert set(cells["Vs. none"].classes) - {"number"} == ({verdict} if verdict else set())


def test_marks_and_ranks_of_the_overview(found: dict[str, Any], document: Element) -> None:
    rows = table(document, "Accuracy by case")
    order = {
        case: sorted(made_up.TEN, key=lambda label: -mean(pooled(found, case, label)))
        for case in made_up.CASES
    }
    for case, labels in order.items():
        for class_, label in (("best", labels[0]), ("second", labels[1])):
            assert [name for name, cells in rows.items() if cells[case].all("span", class_=class_)] == [label]
    papers = [made_up.PAPER[label] for label in made_up.TEN]
    for label, cells in rows.items():
        rank = mean(labels.index(label) + 1 for labels in order.values())
        paper = mean(
            sum(other[place] > made_up.PAPER[label][place] for other in papers) + 1 for place in range(3)
        )
        assert cells["Average rank"].text == f"{rank:.1f} ({paper:.1f})"


def test_findings_say_what_the_figures_say(found: dict[str, Any], document: Element) -> None:
    best, gain, paper = (sentence.text for sentence in document.one("div", class_="findings").all("p"))
    assert "Of 10 methods in 3 cases, atp-online" in best
    assert "72 clients (2 seeds)" in best
    before, after = (
        [a for case in made_up.CASES for a in pooled(found, case, label)] for label in ("none", "atp-online")
    )
    changes = [a - b for a, b in zip(after, before, strict=True)]
    assert f"{mean(changes):+.2f} points" in gain
    assert f"{sum(change < 0 for change in changes)} of 72 clients" in gain
    same = total = 0
    for place, case in enumerate(made_up.CASES):
        for n, one in enumerate(made_up.TEN):
            for other in made_up.TEN[:n]:
                here = [mean(pooled(found, case, label)) for label in (one, other)]
                there = [made_up.PAPER[label][place] for label in (one, other)]
                total += there[0] != there[1]
                same += there[0] != there[1] and (there[0] > there[1]) == (here[0] > here[1])
    assert f"{same} of {total} pairs" in paper


def test_a_client_of_several_cases_counts_once() -> None:
    """Five cases with the same clients and figures say no more than one of them."""
    one = made_up.results(cases=("hybrid",), clients=20, seeds=2) | {"paper": {}}
    for run in one["runs"]:
        run["case"] = ""
    five = copy.deepcopy(one)
    five["runs"] = [{**run, "case": f"cohort={n}"} for n in (15, 30, 60, 120, 240) for run in one["runs"]]
    alone, together = study(one), study(five)
    assert alone.clients == together.clients == 40
    assert together.overall == alone.overall
    gain = read(page(five)).one("div", class_="findings").all("p")[1].text
    line = alone.overall["atp-online"]
    assert f"{line.interval[0]:+.2f} to {line.interval[1]:+.2f}" in gain
    assert "none of 40 clients harmed on average over the cases" in gain


def test_a_client_of_several_cases_has_its_mean_over_them() -> None:
    found = made_up.results(cases=("cohort=15", "cohort=60"), methods=["none", "em"], clients=2, seeds=1)
    for run, (none, em) in zip(
        found["runs"], [([0.5, 0.7], [0.6, 0.8]), ([0.6, 0.5], [0.5, 0.6])], strict=True
    ):
        run["entries"][0]["accuracy"], run["entries"][1]["accuracy"] = none, em
    line = study(found).overall["em"]
    assert line.harmed == 0  # the first gains in one case what it loses in the other
    assert line.difference == pytest.approx(5)
    assert line.interval == (pytest.approx(0, abs=1e-9), pytest.approx(10))


def said(found: dict[str, Any]) -> list[str]:
    return [sentence.text for sentence in read(page(found)).one("div", class_="findings").all("p")]


def test_findings_of_other_results() -> None:
    found = made_up.results(cases=("digits",), methods=["none", "t3a", "tent"], seeds=1)
    found["runs"][0]["case"] = ""  # a single case needs no name
    best, gain, paper = said(found)
    assert best.startswith("Of 3 methods, none is best by accuracy")
    assert re.match(
        rf"No adaptation comes first; the runner-up, t3a, differs from it by {MINUS}[0-9.]+ points", gain
    )
    assert paper == "The paper reports no figures to compare these with."
    cells = table(read(page(found)), "Comparison")["t3a"]
    assert "Paper" not in cells


def test_findings_where_methods_are_equal() -> None:
    best, gain, _ = said(made_up.with_accuracies(("a", "b"), none=[0.5, 0.7], em=[0.5, 0.7], tent=[0.5, 0.7]))
    assert best == "All 3 methods in 2 cases have the same average rank, 2.0, over 4 clients."
    assert gain.startswith("em differs from no adaptation by 0.00 points")
    assert "0.00 to 0.00), the same in every case, with none of 4 clients harmed" in gain
    best, gain, _ = said(made_up.with_accuracies(("a", "b"), none=[0.4, 0.6], em=[0.5, 0.7], tent=[0.7, 0.5]))
    assert best == "Of 3 methods in 2 cases, em and tent share the lowest average rank (1.5), over 4 clients."
    assert gain.startswith("em differs from no adaptation by +10.00 points")
    best, *_ = said(made_up.with_accuracies(("a",), none=[0.4, 0.6], em=[0.5, 0.7], tent=[0.7, 0.5]))
    assert best.startswith("Of 3 methods, em and tent share the highest accuracy (60.00")


def test_findings_of_a_single_method() -> None:
    best, gain, _ = said(made_up.with_accuracies(("a", "b"), none=[0.4, 0.6]))
    assert best.startswith("Only none was run in 2 cases, with a mean accuracy of 50.00")
    assert gain == "No method was run with adaptation, so there is no gain to report."


def test_findings_where_no_adaptation_is_best() -> None:
    best, gain, _ = said(made_up.with_accuracies(("a", "b"), none=[0.6, 0.7], em=[0.6, 0.6], tent=[0.5, 0.5]))
    assert best.startswith("Of 3 methods in 2 cases, none has the lowest average rank (1.0)")
    assert gain.startswith(
        f"No adaptation comes first; the runner-up, em, differs from it by {MINUS}5.00 points"
    )


def test_findings_over_a_number_name_both_ends() -> None:
    cases = tuple(f"batch={size}" for size in (200, 1, 5, 10, 20))
    found = made_up.with_accuracies(cases, none=[0.4, 0.6], em=[0.5, 0.7])
    for run, accuracy in zip(found["runs"], (0.9, 0.6, 0.7, 0.8, 0.7), strict=True):
        run["entries"][1]["accuracy"] = [accuracy, accuracy]
    best, *_ = said(found)
    figures = [f"{a}.00\N{NO-BREAK SPACE}% (batch={n})" for a, n in ((60, 1), (90, 200))]
    assert f"with a mean accuracy of {' to '.join(figures)}" in best


def test_clients_are_drawn_where_their_accuracy_is(found: dict[str, Any], document: Element) -> None:
    rows = data(document, "clients-figure")
    assert len(rows) == 72
    drawn = document.one("figure", id="clients-figure").all("g", class_="pairs")
    assert len(drawn) == 6
    for pairs in drawn:
        low, high, height = (
            float(pairs.attributes[f"data-{key}"] or "") for key in ("low", "high", "height")
        )
        befores = []
        for pair in pairs.children:
            row = rows[int(pair.attributes["data-row"] or "")]
            (run,) = (r for r in found["runs"] if (r["case"], r["seed"]) == (row["case"], row["seed"]))
            client = [c["id"] for c in run["clients"]].index(row["client"])
            by_label = {entry["label"]: entry["accuracy"][client] for entry in run["entries"]}
            assert {label: row[label] for label in made_up.TEN} == by_label
            before, after = (float(c.attributes["cy"] or "") for c in pair.all("circle"))
            for top, label in ((before, "none"), (after, "atp-online")):
                assert top == pytest.approx(height * (high - 100 * by_label[label]) / (high - low), abs=0.01)
            harmed = by_label["atp-online"] < by_label["none"]
            assert ("harm" in pair.classes) == harmed
            befores.append(before)
        assert befores == sorted(befores, reverse=True)


def test_bars_have_the_sign_and_length_of_rates(found: dict[str, Any], document: Element) -> None:
    learned = {
        run["case"]: entry["rates"]["modules"]
        for run in found["runs"]
        for entry in run["entries"]
        if entry["rates"]
    }
    shown = document.one("figure", id="rates-figure")
    lengths = {}
    for case in made_up.CASES:
        for key in ("block", "kind"):
            means: dict[str, list[float]] = {}
            for module in learned[case]:
                means.setdefault(module[key], []).append(module["rate"])
            drawing = next(s for s in shown.all("svg") if s.one("title").text == f"Rates by {key}, {case}")
            bars = drawing.all("rect", class_="bar")
            assert [text.text for text in drawing.all("text", class_="bar-name")] == list(means)
            for bar, rates in zip(bars, means.values(), strict=True):
                assert ("gain" if mean(rates) > 0 else "harm") in bar.classes
                lengths[abs(mean(rates))] = float((bar.attributes["width"] or "").rstrip("%"))
    ratios = [length / rate for rate, length in lengths.items() if rate > 0.01]
    assert max(ratios) / min(ratios) < 1.02  # rounded to a hundredth of a percent
    assert {row["method"] for row in data(document, "rates-figure")} == {"atp-batch, atp-online"}


def test_rates_that_cases_share_are_drawn_once() -> None:
    found = made_up.results(cases=("batch=1", "batch=5", "batch=9"), methods=["none", "atp-batch"], seeds=1)
    learned = found["runs"][0]["entries"][1]["rates"]
    found["runs"][1]["entries"][1]["rates"] = learned
    assert list(drawings(read(page(found)), "rates-figure")) == [
        "Rates by block, batch=1, batch=5",
        "Rates by block, batch=9",
        "Rates by kind, batch=1, batch=5",
        "Rates by kind, batch=9",
    ]
    found["runs"][2]["entries"][1]["rates"] = learned
    document = read(page(found))
    same = "the same in every case"
    assert list(drawings(document, "rates-figure")) == [
        f"Rates by {key}, {same}" for key in ("block", "kind")
    ]
    rows = data(document, "rates-figure")
    assert {row["case"] for row in rows} == {"batch=1", "batch=5", "batch=9"}


def test_breakdown_is_the_mean_difference_of_a_group(found: dict[str, Any], document: Element) -> None:
    cells = table(document, "By group, hybrid")["em"]
    changes: dict[str, list[float]] = {}
    for run in found["runs"]:
        if run["case"] == "hybrid":
            none, em = (next(e for e in run["entries"] if e["label"] == label) for label in ("none", "em"))
            for n, client in enumerate(run["clients"]):
                change = 100 * (em["accuracy"][n] - none["accuracy"][n])
                for group in (
                    client["corruption"]["name"].replace("_", " "),
                    f"severity {client['corruption']['severity']}",
                ):
                    changes.setdefault(group, []).append(change)
    assert set(cells) - {"Method"} == set(changes)
    for group, values in changes.items():
        assert number(cells[group].text) == pytest.approx(mean(values), abs=0.06)
    assert not document.all("div", **{"aria-label": "By group, label"})  # no corruptions there


def test_curves_hold_every_round(found: dict[str, Any], document: Element) -> None:
    rows = data(document, "curves-figure")
    run = found["runs"][0]
    own = [row for row in rows if (row["case"], row["seed"]) == (run["case"], run["seed"])]
    training = [row for row in own if row["stage"] == "Global training"]
    assert [row["source, training data, loss"] for row in training] == pytest.approx(
        [record["train_loss"] for record in run["training"]], rel=1e-6
    )
    looked = {row["round"]: row["target, accuracy"] for row in training}
    for record in run["training"]:
        expected = record.get("target", {}).get("accuracy")
        assert looked[record["round"]] == (None if expected is None else pytest.approx(expected, rel=1e-6))
    learning = [row for row in own if row["stage"] == "Rate learning, atp-batch, atp-online"]
    assert len(learning) == 120
    caption = document.one("figure", id="curves-figure").one("figcaption").text
    validated = any("validation_loss" in record for record in run["training"])
    assert ("validation data is evaluated with the model at the start of a round" in caption) == validated


def drawings(document: Element, figure: str) -> dict[str, Element]:
    """The charts of a figure by their titles."""
    found = document.one("figure", id=figure).all("div", class_="plot")
    return {plot.one("title").text: plot for plot in found}


def test_curves_of_numbered_cases_share_their_charts() -> None:
    cases = ("cohort=60", "cohort=15", "cohort=240")
    found = made_up.results(cases=cases, methods=["none", "atp-batch"], seeds=1)
    for run in found["runs"]:
        run["training"] = found["runs"][0]["training"]  # the global model is the same
        for record in run["entries"][1]["rates"]["history"]:
            if "target" in record:
                record["target"] = {"batch": 0.6, "batch_loss": record["validation_loss"] + 0.1}
    document = read(page(found))
    charts = drawings(document, "curves-figure")
    stage = "Rate learning, atp-batch"
    assert list(charts) == [
        "Global training, the same in every case: loss",
        "Global training, the same in every case: accuracy",
        "Rate learning, atp-batch, the same in every case: accuracy",  # of target clients
        f"{stage}: source, validation data: loss",
        f"{stage}: source, validation data: accuracy",
        f"{stage}: target, batch: loss",
    ]
    lines = charts[f"{stage}: source, validation data: loss"].all("path", class_="line")
    styles = [" ".join(line.classes) for line in lines if "faint" not in line.classes]
    assert len(set(styles)) == 3
    assert len(lines) == 6  # 120 rounds jump too much to be compared: means on top of them
    legend = document.one("figure", id="curves-figure").all("p", class_="legend")[-1]
    *texts, faint = (key.text for key in legend.all("span"))
    assert texts == ["cohort=15", "cohort=60", "cohort=240"]
    assert faint == "as measured; strong lines are means over 21 points"
    keys = [" ".join(key.classes) for key in legend.all("i")][:-1]
    assert keys == [style.replace("line", "key stroke") for style in styles]
    points = charts[f"{stage}: target, batch: loss"].all("circle")
    assert {(p.attributes["aria-label"] or "").partition(",")[0] for p in points} == set(cases)
    rows = data(document, "curves-figure")
    assert {row["case"] for row in rows} == set(cases)
    assert len(rows) == 3 * (60 + 120)
    losses = [row["target, batch, loss"] for row in rows if row["target, batch, loss"] is not None]
    assert len(losses) == 3 * 6


def test_running_means_end_at_the_ends() -> None:
    points = [(10 * n, float(n % 2)) for n in range(100)]
    means = _running_means(points)
    assert [x for x, _ in means] == [x for x, _ in points]
    assert (means[0], means[-1]) == (points[0], points[-1])
    assert means[1] == (10, pytest.approx(1 / 3))
    assert means[50] == (500, pytest.approx(10 / 21))  # ten of the 21 points around an even one are odd


def test_cases_that_are_not_numbered_have_charts_of_their_own(document: Element) -> None:
    shown = document.one("figure", id="curves-figure").all("div", class_="panel")
    assert [panel.attributes["data-title"] for panel in shown] == list(made_up.CASES)
    for panel in shown:
        keys = [key.text for key in panel.one("p", class_="legend").all("span")]
        assert keys == [
            "source, training data",
            "source, validation data",
            "target",
            "target, batch",
            "target, online",
        ]


def test_pictures_have_the_pixels_of_the_samples(found: dict[str, Any], document: Element) -> None:
    samples = made_up.samples(found)
    images = [image for client in samples["runs"][0]["clients"] for image in client["images"]]
    items = document.one("figure", id="pictures-figure").all("li")
    assert len(items) == len(images) == 24
    for item, image in zip(items, images, strict=True):
        address = item.one("img").attributes["src"] or ""
        shown = Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
        assert np.asarray(shown).tobytes() == base64.b64decode(image["rgb"])
        for prediction, when in zip(item.all("span", class_="prediction"), ("before", "after"), strict=True):
            right = image[when]["answer"] == image["label"]
            assert ("gain" in prediction.classes) == right
            assert f"{when}: {'correct' if right else 'wrong'}" in prediction.text


def test_scatter_and_lines_over_a_number(document: Element) -> None:
    scatter = document.one("figure", id="tradeoff-figure")
    assert len(scatter.all("circle", class_="point")) == 10
    found = made_up.results(cases=("cohort=60", "cohort=15", "cohort=240"), methods=["none", "em"], seeds=1)
    other = read(page(found))
    assert not other.all("figure", id="tradeoff-figure")
    rows = data(other, "variation-cohort")
    assert [row["cohort"] for row in rows] == [15, 60, 240]
    chart = other.one("figure", id="variation-cohort")
    assert {c.attributes["cx"] for c in chart.all("circle")} == {"0.00%", "50.00%", "100.00%"}  # logarithmic


def test_audit_and_provenance(found: dict[str, Any], document: Element) -> None:
    text = document.one("section", id="audit").text
    digest = found["runs"][0]["population"]["digest"]
    for fact in ("48 source, 12 target", "no image belongs to two clients", digest):
        assert fact in text
    text = document.one("section", id="provenance").text
    for fact in (found["recipe"]["command"], found["recipe"]["hash"], "2.13.0", "1 h 15 min"):
        assert fact in text
    assert "computed with" not in text
    stages = {"model": [{"torch": "2.12.0", "numpy": "2.4.6"}], "rates": [{"torch": "2.13.0"}]}
    found = found | {"made": found["made"] | {"stages": stages}}
    text = read(page(found)).one("section", id="provenance").text
    assert "computed with, model" in text
    assert "torch 2.12.0" in text
    assert "numpy 2.4.6" not in text  # as in the run itself
    assert "computed with, rates" not in text
    cost = table(document, "Cost")
    assert cost["memo"]["Memory"].text == "46.0 kB"
    edge = [row["at_edge"] for row in data(document, "hyper-parameters") if row["method"] == "tent"]
    assert set(edge) == {"lr"}


def test_nothing_comes_from_elsewhere(found: dict[str, Any], text: str, document: Element) -> None:
    words = re.sub(r'"data:image/png;base64,[^"]*"', "", text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", words)
    for element in document.all():
        for key in ("src", "href"):
            address = element.attributes.get(key) or "#"
            assert address.startswith(("#", "data:image/png;"))
    assert page(found, made_up.samples(found)) == text


def test_texts_of_the_file_stay_texts() -> None:
    found = made_up.results(methods=["none", "em", "atp-batch"], clients=4, seeds=1) | {"paper": {}}
    plain = read(page(found, made_up.samples(found)))
    nasty = read(page(made_up.nasty(found), made_up.nasty(made_up.samples(found))))
    for name in ("script", "img", "a", "style", "meta"):
        assert len(nasty.all(name)) == len(plain.all(name))
    for of in (lambda element: [element.name], lambda element: list(element.attributes)):
        assert {n for element in nasty.all() for n in of(element)} == {n for e in plain.all() for n in of(e)}
    assert made_up.NASTY in nasty.one("h1").text
    assert all(made_up.NASTY in row["client"] for row in data(nasty, "clients-figure"))


def test_what_is_not_there_is_left_out(found: dict[str, Any]) -> None:
    bare = copy.deepcopy(found)
    bare["paper"] = {}
    for run in bare["runs"]:
        run["training"] = []
        run["entries"] = [entry for entry in run["entries"] if entry["label"] != "none"]
        for entry in run["entries"]:
            entry["rates"] = None
            entry["time"] = entry["ece"] = [None] * len(entry["accuracy"])
    sections = [section.attributes["id"] for section in read(page(bare)).all("section")]
    assert sections == ["comparison", "tradeoff", "breakdown", "audit", "provenance"]


def test_a_method_that_is_not_in_every_case() -> None:
    found = made_up.results(cases=("feature", "label"), methods=["none", "em", "tent"], seeds=1)
    found["runs"][1]["entries"].pop()
    rows = table(read(page(found)), "Accuracy by case")
    assert rows["tent"]["label"].text == rows["tent"]["Average rank"].text == "\N{EN DASH}"
    assert {rows[label]["Average rank"].text for label in ("none", "em")} == {"1.5 (1.5)"}


def test_methods_of_the_paper_have_ranks_among_themselves() -> None:
    found = made_up.results(cases=("feature", "label"), methods=["none", "em", "lame"], seeds=1)
    rows = table(read(page(found)), "Accuracy by case")
    assert rows["lame"]["Rank among the paper's"].text == "\N{EN DASH}"
    assert {rows[label]["Rank among the paper's"].text for label in ("none", "em")} == {"1.5 (1.5)"}
    assert "(" not in rows["none"]["Average rank"].text


@given(st.lists(st.floats(-50, 150), min_size=1, max_size=20))
def test_spread_out(places: list[float]) -> None:
    moved = spread_out(places, apart=10, low=0, high=100)
    apart = min(10, 100 / max(1, len(places) - 1))
    ordered = sorted(moved)
    assert all(b - a >= apart - 1e-6 for a, b in pairwise(ordered))
    assert -1e-6 <= ordered[0] <= ordered[-1] <= 100 + 1e-6
    pairs = sorted(zip(places, moved, strict=True))
    assert all(a == b or x < y for (a, x), (b, y) in pairwise(pairs))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=16, unique=True))
def test_free_sides_do_not_overlap(points: list[tuple[int, int]]) -> None:
    width = 40
    offset = {"right": (7, -7), "left": (-7 - width, -7), "above": (-20, -20), "below": (-20, 6)}
    corners = [
        (x + offset[side][0], y + offset[side][1])
        for (x, y), side in zip(
            points, free_sides(points, [width] * len(points), (0, 0, 300, 300)), strict=True
        )
        if side
    ]
    for n, (x, y) in enumerate(corners):
        assert 0 <= x <= 300 - width
        assert 0 <= y <= 300 - 14
        for other_x, other_y in corners[:n]:
            assert abs(x - other_x) >= width or abs(y - other_y) >= 14


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=10))
def test_scales_cover_their_values(values: list[float]) -> None:
    scale = covering(values)
    assert all(-1e-6 <= scale(value) <= 1 + 1e-6 for value in values)
    assert 2 <= len(scale.ticks()) <= 8
    assert Scale(10, 1000, log=True)(100) == pytest.approx(0.5)


def test_the_weakest_privacy_of_rates_is_shown(found: dict[str, Any], document: Element) -> None:
    caption = document.one("figure", id="rates-figure").one("figcaption").text
    assert "epsilon" not in caption
    private = copy.deepcopy(found)
    entries = [entry for run in private["runs"] for entry in run["entries"] if entry["rates"]]
    for number, entry in enumerate(entries):
        last = {"epsilon": 1.0 + number, "delta": 1e-5} if entry["label"] == "atp-online" else {}
        entry["rates"]["history"][-1] |= last
    weakest = max(entry["rates"]["history"][-1].get("epsilon", 0) for entry in entries)
    assert f"atp-online: epsilon {weakest:g} at delta 1e-05" in shown_privacy(private)
    unbound = next(entry for entry in entries if entry["label"] == "atp-online")["rates"]["history"][-1]
    unbound |= {"epsilon": None, "no_bound": "learned <without> privacy"}
    assert "atp-online: no privacy bound, epsilon is infinite (learned <without> privacy)" in shown_privacy(
        private
    )


def shown_privacy(results: dict[str, Any]) -> str:
    return read(page(results)).one("figure", id="rates-figure").one("figcaption").text
