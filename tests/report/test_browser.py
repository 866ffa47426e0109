"""The page in a real browser, without a window: Chromium or Chrome, and the driver that belongs to it."""

import csv
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import made_up
from ttpfl.report import write_report
from ttpfl.report.scale import covering

pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

# Where packages put programs that are not on everybody's path.
FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/lib/chromium", "/usr/lib/chromium-browser"))


def program(*names: str) -> str | None:
    """The first of these names that is installed."""
    return next(filter(None, (shutil.which(name, path=FOLDERS) for name in names)), None)


BROWSER = program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVER = program("chromedriver", "chromium.chromedriver")
MISSING = [name for name, path in (("a browser (chromium)", BROWSER), ("chromedriver", DRIVER)) if not path]

pytestmark = pytest.mark.skipif(
    bool(MISSING),
    reason=f"not installed: {' and '.join(MISSING)}; on Debian: apt install chromium chromium-driver",
)

NARROW = 400
LIGHT, DARK = "light", "dark"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return made_up.results(rounds=20)


@pytest.fixture(scope="module")
def report(found: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(found, tmp_path_factory.mktemp("report"))


def written(found: dict[str, Any], folder: Path) -> Path:
    (folder / "results.json").write_text(json.dumps(found))
    samples = made_up.samples(found)
    (folder / "samples.json").write_text(
        json.dumps(made_up.nasty(samples) if "hacked" in str(found) else samples)
    )
    return write_report(folder)


def show(browser: webdriver.Chrome, path: Path, width: int = 1200, scheme: str = LIGHT) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == NARROW}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(path.as_uri())


def all_of(browser: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    return browser.find_elements("css selector", selector)


def one(browser: webdriver.Chrome | WebElement, selector: str) -> WebElement:
    return browser.find_element("css selector", selector)


def eventually(holds: Callable[[], bool]) -> bool:
    """True as soon as it holds; False if it does not for ten seconds."""
    deadline = time.monotonic() + 10
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_it_opens_without_complaints(browser: webdriver.Chrome, report: Path, scheme: str) -> None:
    show(browser, report, scheme=scheme)
    assert browser.get_log("browser") == []
    assert len(all_of(browser, "section")) == 10
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    assert browser.execute_script("return performance.getEntriesByType('resource').filter("
                                  "e => !e.name.startsWith('data:')).length") == 0  # fmt: skip


def test_hostile_texts_do_nothing(browser: webdriver.Chrome, found: dict[str, Any], tmp_path: Path) -> None:
    path = written(made_up.nasty(found) | {"paper": {}}, tmp_path)
    show(browser, path)
    assert browser.get_log("browser") == []
    assert browser.title == found["recipe"]["title"] + made_up.NASTY
    browser.execute_script("document.body.append(Object.assign(document.createElement('script'),"
                           "{textContent: 'document.title = 1'}))")  # fmt: skip
    assert browser.title != "1"  # the policy allows no script but the page's own
    browser.get_log("browser")
    show(browser, path, width=NARROW)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW


def test_headers_sort(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report)
    table = one(browser, "#comparison-table table")

    def column(number: int) -> list[float]:
        return [float(cell.get_attribute("data-value") or "nan")
                for cell in all_of(table, f"tbody td:nth-child({number})")]  # fmt: skip

    header = one(table, "th:nth-child(2)")
    assert header.get_attribute("aria-sort") == "none"
    one(header, "button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert column(2) == sorted(column(2), reverse=True)
    assert one(table, "tbody th").text == "atp-online"
    one(header, "button").send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(2) == sorted(column(2))
    one(table, "th:first-child button").send_keys(Keys.ENTER)
    names = [cell.text for cell in all_of(table, "tbody th")]
    assert names == sorted(made_up.TEN)
    assert header.get_attribute("aria-sort") == "none"


def test_points_have_tooltips(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report)
    tooltip = one(browser, "#tooltip")
    assert not tooltip.is_displayed()
    point = one(browser, "#tradeoff-figure circle.point")
    ActionChains(browser).move_to_element(point).perform()
    assert eventually(tooltip.is_displayed)
    assert tooltip.text == point.get_attribute("aria-label")
    assert tooltip.text.startswith("none: feature ")
    ActionChains(browser).move_to_element(one(browser, "#tradeoff h2")).perform()
    assert eventually(lambda: not tooltip.is_displayed())
    pairs = all_of(browser, "#clients-figure .panel:not([hidden]) .pairs g")
    browser.execute_script("arguments[0].focus()", pairs[0])
    for key, place in ((Keys.ARROW_RIGHT, 1), (Keys.END, 11), (Keys.ARROW_RIGHT, 11), (Keys.HOME, 0)):
        browser.switch_to.active_element.send_keys(key)
        assert browser.switch_to.active_element == pairs[place]
        assert tooltip.text == pairs[place].get_attribute("aria-label")
    assert [pair.get_attribute("tabindex") for pair in pairs] == ["0"] + ["-1"] * 11
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tooltip.is_displayed()


def test_nothing_overflows_a_phone(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report, width=NARROW)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    choices = max(len(all_of(group, "input")) for group in all_of(browser, "fieldset"))
    for place in range(choices):
        browser.execute_script("for (const f of document.querySelectorAll('fieldset'))"
                               "f.querySelectorAll('input')[arguments[0]]?.click()", place)  # fmt: skip
        assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW
        outside = browser.execute_script(
            "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .spoken')"
            " && e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 0.5)"
            ".map(e => e.outerHTML.slice(0, 200))"
        )
        assert outside == []


CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (c) => {
  const [r, g, b] = rgb(c).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (e) => {
  const own = getComputedStyle(e).backgroundColor;
  return e === document.documentElement || /^rgb\\(/.test(own) ? own : behind(e.parentElement);
};
return arguments[0].map((selector) => {
  const element = document.querySelector(selector), style = getComputedStyle(element);
  const ink = element instanceof SVGElement ? style.fill : style.color;
  const [one, other] = [light(ink), light(behind(element))].sort((a, b) => b - a);
  return (one + 0.05) / (other + 0.05);
});
"""


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_texts_stand_out(browser: webdriver.Chrome, report: Path, scheme: str) -> None:
    """The contrast that WCAG asks for at level AA: 4.5 for text, 3 for marks."""
    show(browser, report, scheme=scheme)
    texts = ["p", ".question", ".origin", "nav a", "figcaption", "th", "td small", "td.gain", "td.harm",
             ".download", "text.tick", "text.axis", ".prediction.gain", ".prediction.harm", ".command code",
             ".pills label", ".pills label:has(:checked)", "select", ".names text"]  # fmt: skip
    marks = [
        "rect.bar.gain",
        "rect.bar.harm",
        ".pairs g.gain circle:last-child",
        ".pairs g.harm circle:last-child",
    ]
    for selectors, least in ((texts, 4.5), (marks, 3.0)):
        for selector, ratio in zip(selectors, browser.execute_script(CONTRAST, selectors), strict=True):
            assert ratio >= least, selector
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(paper.split("(")[1].split(",")[0]) < 60) == (scheme == DARK)


def test_a_choice_shows_one_panel(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report)
    figure = one(browser, "#comparison-table")
    panels = all_of(figure, ".panel")
    assert [panel.is_displayed() for panel in panels] == [True, False, False]
    one(figure, "input").send_keys(Keys.ARROW_RIGHT)
    assert [panel.is_displayed() for panel in panels] == [False, True, False]
    assert one(figure, "label:has(:checked)").text == "label"
    assert all_of(browser, "#rates-figure .panels") == []  # a single one needs no choice


def test_many_panels_are_chosen_from_a_list(browser: webdriver.Chrome, tmp_path: Path) -> None:
    found = made_up.results(cases=("hybrid",), methods=["none", "em"], clients=3, seeds=9, rounds=5)
    show(browser, written(found, tmp_path))
    panels = all_of(browser, "#audit-figure .panel")
    Select(one(browser, "#audit-figure select")).select_by_visible_text("hybrid, seed 7")
    assert [panel.is_displayed() for panel in panels] == [seed == 7 for seed in range(9)]


def test_another_method_moves_the_points(
    browser: webdriver.Chrome, report: Path, found: dict[str, Any]
) -> None:
    show(browser, report)
    figure = one(browser, "#clients-figure")
    Select(one(figure, "select")).select_by_visible_text("bbse")
    entries = {entry["label"]: entry["accuracy"] for entry in found["runs"][0]["entries"]}
    harmed = sum(a < b for a, b in zip(entries["bbse"], entries["none"], strict=True))
    assert one(figure, ".note").text.startswith(f"bbse: {harmed} of 12 clients harmed, mean ")
    pairs = all_of(figure, ".panel:not([hidden]) .pairs g")
    assert sum("harm" in (pair.get_attribute("class") or "") for pair in pairs) == harmed
    shown = [100 * a for label in ("none", "bbse") for a in entries[label]]
    scale = covering(shown)  # the axis fits what is shown now
    axis = all_of(figure, ".panel:not([hidden]) .y-axis text")
    assert [text.text for text in axis] == [f"{tick:g}" for tick in scale.ticks()]
    height = float(one(figure, ".pairs").get_attribute("data-height") or "")
    for pair, n in zip(pairs, sorted(range(12), key=lambda n: entries["none"][n]), strict=True):
        before, after = 100 * entries["none"][n], 100 * entries["bbse"][n]
        name, change = (pair.get_attribute("aria-label") or "").split(": ")
        assert name.split(",")[0] == f"target-{n}"
        assert change.startswith(f"{before:.1f} % → {after:.1f} % (")
        top, low = (float(c.get_attribute("cy") or "") for c in all_of(pair, "circle"))
        assert (low > top) == (after < before)
        assert [top, low] == pytest.approx([height * (1 - scale(value)) for value in (before, after)])
    Select(one(figure, "select")).select_by_visible_text("atp-online")
    now = [pair.get_attribute("aria-label") for pair in pairs]
    show(browser, report)
    assert now == [p.get_attribute("aria-label") for p in all_of(browser, ".panel:not([hidden]) .pairs g")]


def test_data_can_be_downloaded(
    browser: webdriver.Chrome, report: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    show(browser, report)
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    figures = all_of(browser, "figure")
    assert all(len(all_of(figure, "button.download")) == 1 for figure in figures)
    browser.execute_script("arguments[0].click()", one(browser, "#clients-figure .download"))
    path = tmp_path / "clients-figure.csv"
    assert eventually(path.exists)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [
        {
            "case": run["case"],
            "seed": str(run["seed"]),
            "client": client["id"],
            "accuracy": entry["accuracy"][n],
        }
        for run in found["runs"]
        for entry in run["entries"]
        if entry["label"] == "em"
        for n, client in enumerate(run["clients"])
    ]
    assert [
        {**{key: row[key] for key in ("case", "seed", "client")}, "accuracy": float(row["em"])}
        for row in rows
    ] == expected
