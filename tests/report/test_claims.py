"""What the page claims is what the figures can carry."""

import re
from typing import Any

import pytest

from tests.helpers import made_up
from tests.helpers.made_up import with_accuracies
from tests.helpers.page_reader import Element, data, read, table
from ttpfl.report import page
from ttpfl.report.scale import covering

DASH, MINUS, SPACE = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"


def headlines(found: dict[str, Any]) -> list[str]:
    return [sentence.text for sentence in read(page(found)).one("div", class_="findings").all("p")]


def test_a_lead_within_its_interval_makes_nobody_the_best() -> None:
    """By hand: the two clients' differences are +10 and -5 points, so the interval is from -5 to +10."""
    best, *_ = headlines(with_accuracies(none=[0.4, 0.4], tent=[0.5, 0.55], em=[0.6, 0.5]))
    assert best == (
        f"Of 3 methods, em has the highest accuracy (55.00{SPACE}%), over 2 clients. It leads tent, the "
        f"runner-up, by 2.50 points in mean accuracy (95{SPACE}% interval, paired by client: {MINUS}5.00 to "
        "+10.00): too close to call."
    )


def test_a_lead_at_every_client_makes_the_best() -> None:
    """Clients differ far more than methods do; paired, that does not matter."""
    best, *_ = headlines(with_accuracies(none=[0.1, 0.8], tent=[0.2, 0.88], em=[0.21, 0.9]))
    assert "em is best by accuracy (55.50" in best
    assert best.endswith("by 1.50 points in mean accuracy (95\N{NO-BREAK SPACE}% interval, paired by client: "
                         "+1.00 to +2.00).")  # fmt: skip


def test_the_first_by_rank_may_be_behind_by_accuracy() -> None:
    found = with_accuracies(("a", "b", "c"), none=[0.4, 0.4], em=[0.5, 0.5], tent=[0.49, 0.49])
    found["runs"][2]["entries"][1]["accuracy"] = [0.45, 0.45]
    found["runs"][2]["entries"][2]["accuracy"] = [0.9, 0.9]
    best, *_ = headlines(found)
    assert "em has the lowest average rank (1.3)" in best
    assert "It trails tent, the runner-up, by 14.33 points" in best


def test_one_client_gives_no_interval() -> None:
    found = with_accuracies(none=[0.4], em=[0.5], tent=[0.45])
    document, (best, gain, _) = read(page(found)), headlines(found)
    assert best.endswith("over 1 client. It leads tent, the runner-up, by 5.00 points in mean accuracy (a "
                         "single client gives no interval).")  # fmt: skip
    assert "+10.00 points (a single client gives no interval), with none of 1 client harmed" in gain
    cells = table(document, "Comparison")["em"]
    assert (cells["Vs. none"].text, cells["95 % interval"].text) == ("+10.00", DASH)
    assert not {"gain", "harm"} & set(cells["Vs. none"].classes)
    assert len(cells["Plot"].all("circle")) == 1
    assert not cells["Plot"].all("line", class_="span")
    caption = document.one("figure", id="comparison-table").one("figcaption").text
    assert caption.count("A single client gives no interval.") == 1
    row = next(row for row in data(document, "comparison-table") if row["method"] == "em")
    assert (row["difference"], row["low"], row["high"]) == (10, None, None)


def test_an_interval_of_several_equal_clients_has_no_width() -> None:
    found = with_accuracies(none=[0.4, 0.5, 0.6], em=[0.5, 0.6, 0.7])
    assert table(read(page(found)), "Comparison")["em"]["95 % interval"].text == "+10.00 to +10.00"
    assert "A single client gives no interval" not in page(found)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_gives_no_spread(seeds: int) -> None:
    found = made_up.results(("a", "b"), ["none", "em"], clients=3, seeds=seeds)
    captions = [figure.one("figcaption").text for figure in read(page(found)).all("figure")]
    assert sum("a single seed gives no spread" in caption for caption in captions) == (2 if seeds == 1 else 0)


@pytest.mark.parametrize("cases", [made_up.CASES, ("cohort=15", "cohort=60", "other"), ("",)])
def test_no_two_charts_have_one_title(cases: tuple[str, ...]) -> None:
    found = made_up.results(cases, ["none", "em", "atp-batch", "atp-online"], clients=4, seeds=2)
    document = read(page(found, made_up.samples(found, cases[0])))
    titles = [title.text for title in document.all("title")]
    assert len(set(titles)) == len(titles)
    for panel in document.all("div", class_="multiples"):
        shown = [heading.text for heading in panel.all("h5")]
        assert len(set(shown)) == len(shown)


def test_no_column_is_without_a_heading() -> None:
    document = read(page(made_up.results(clients=4)))
    headings = [header for head in document.all("thead") for header in head.all("th")]
    assert len(headings) > 40
    assert all(header.text for header in headings)


def test_the_axis_of_clients_fits_what_is_shown() -> None:
    """A method that is not shown, and that is far worse, does not squeeze the others."""
    shown = {"none": [0.75, 0.8, 0.85], "em": [0.73, 0.85, 0.89], "tent": [0.41, 0.42, 0.43]}
    figure = read(page(with_accuracies(**shown))).one("figure", id="clients-figure")
    low, high = (
        float(figure.one("g", class_="pairs").attributes[f"data-{end}"] or "") for end in ("low", "high")
    )
    assert (low, high) == (70, 90)
    ticks = [text.text for text in figure.one("g", class_="y-axis").all("text")]
    assert ticks == ["70", "75", "80", "85", "90"]
    assert "The axis does not start at zero." in figure.one("figcaption").text
    other = covering([41.0, 85.0])
    assert f'"tent": {{"low": {other.low}, "high": {other.high}' in str(
        figure.one("g", class_="pairs").attributes["data-axes"]
    )


def test_columns_of_the_audit_are_named_after_clients() -> None:
    found = made_up.results(("hybrid",), ["none", "em"], clients=12, seeds=1)
    audit = read(page(found)).one("figure", id="audit-figure")
    texts = [text.text for text in audit.all("text")]
    assert texts[-14:] == ["target client", "class", *map(str, range(12))]
    for run in found["runs"]:
        for number, client in enumerate(run["clients"]):
            client["id"] = f"hospital {number} of the north"  # nothing to leave out, and no room
    audit = read(page(found)).one("figure", id="audit-figure")
    headings = audit.all("text", class_="middle")
    assert 1 < len(headings) < 12
    assert all(len(heading.text) <= 8 for heading in headings)


@pytest.mark.parametrize(("held", "shown"), [(0, "none"), (4, "< 1 kB"), (46_000, "46.0 kB")])
def test_memory_is_said_sensibly(held: int, shown: str) -> None:
    found = made_up.results(("hybrid",), ["none", "em"], clients=3, seeds=1)
    found["runs"][0]["entries"][1]["extra_bytes"] = [held] * 3
    assert table(read(page(found)), "Cost")["em"]["Memory"].text == shown


def curves(document: Element) -> list[str]:
    return [note.text for note in document.one("section", id="curves").all("p", class_="note")]


def with_learning(source: list[float], target: list[float]) -> dict[str, Any]:
    found = made_up.results(("hybrid",), ["none", "atp-batch"], clients=3, seeds=1, rounds=4)
    rounds = zip(source, target, strict=True)
    found["runs"][0]["entries"][1]["rates"]["history"] = [
        {"round": number, "validation_accuracy": at_source, "target": {"batch": at_target}}
        for number, (at_source, at_target) in enumerate(rounds)
    ]
    return found


def test_flat_target_curves_beside_rising_source_curves_are_said() -> None:
    """By hand: of eight rounds the first two have the mean 0.60 and the last two 0.65."""
    source, flat = [0.59, 0.61, 0.62, 0.63, 0.63, 0.64, 0.65, 0.65], [0.5] * 7 + [0.51]
    (note,) = curves(read(page(with_learning(source, flat))))
    assert note == (
        "Rate learning, atp-batch, hybrid: after round 0, accuracy still rises by 5.0 points at source "
        "clients but changes by less than 1 point at target clients (target, batch: +0.5), which gain "
        "nothing visible from these rounds."
    )
    rising = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.51, 0.51]
    assert curves(read(page(with_learning(source, rising)))) == []  # by a whole point
    assert curves(read(page(with_learning([0.6] * 6 + [0.619] * 2, flat)))) == []  # by less than two


def test_how_images_were_chosen_is_said() -> None:
    found = made_up.results(("hybrid",), clients=4, seeds=1)
    samples = made_up.samples(found)
    for client in samples["runs"][0]["clients"]:
        client |= {"size": 200, "changed": 24}
    shown = read(page(found, samples)).one("figure", id="pictures-figure")
    assert "drawn at random" in shown.one("figcaption").text
    assert "the clients with the largest, median and smallest gain" in shown.one("figcaption").text
    headings = [heading.text for heading in shown.all("h5")]
    assert len(headings) == 3
    assert all(
        re.search(rf"adaptation changes 24 of all 200 predictions \(12{SPACE}%\)", h) for h in headings
    )


def test_images_of_earlier_versions_were_not_random() -> None:
    found = made_up.results(("hybrid",), clients=4, seeds=1)
    caption = read(page(found, made_up.samples(found))).one("figure", id="pictures-figure").one("figcaption")
    assert "Images whose prediction changes come first" in caption.text
    assert "random" not in caption.text


def test_long_names_of_classes_are_whole() -> None:
    found = made_up.results(("hybrid",), ["none", "em"], clients=3, seeds=1)
    short = read(page(found)).one("figure", id="audit-figure").one("div", class_="counts")
    assert "long" not in short.attributes["class"]
    for run in found["runs"]:
        run["population"]["classes"][:2] = ["WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS"]
    audit = read(page(found)).one("figure", id="audit-figure")
    assert "long" in audit.one("div", class_="counts").attributes["class"]
    assert {"WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS"} <= {text.text for text in audit.all("text")}


def test_a_single_client_has_room_for_its_name() -> None:
    found = made_up.results(("hybrid",), ["none", "em"], clients=1, seeds=1)
    found["runs"][0]["clients"][0]["id"] = "switzerland"
    audit = read(page(found)).one("figure", id="audit-figure")
    assert [text.text for text in audit.all("text", class_="middle")] == ["switzerland"]


def test_commits_have_the_digits_that_git_needs() -> None:
    found = made_up.results(("hybrid",), ["none", "em"], clients=3, seeds=1)
    commits = ["0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98-dirty"]
    found["made"] |= {"commit": commits[0], "stages": {"model": [{"commit": commits[1]}]}}
    text = read(page(found)).one("section", id="provenance").text
    assert "0123456789ab" in text
    assert "fedcba987654-dirty" in text
    assert "0123456789abc" not in text
    assert "fedcba9876543" not in text


def test_rates_of_zero_are_said_to_be_zero() -> None:
    found = made_up.results(("feature", "hybrid"), ["none", "atp-online"], clients=3, seeds=1)
    words = "All rates are zero, so nothing adapts."
    assert words not in read(page(found)).one("section", id="rates").text
    for module in found["runs"][0]["entries"][1]["rates"]["modules"]:
        module["rate"] = 0.0
    section = read(page(found)).one("section", id="rates")
    assert section.text.count(words) == 1  # the other case has bars, by block and by kind
    assert [drawing.attributes["class"] for drawing in section.all("div", class_="plot")] == ["plot bars"] * 2
