"""What the repository shows was really run: tables in README and docs/ follow from the files in results/."""

import json
import re
from pathlib import Path

import pytest

from ttpfl.experiment.recipe import read
from ttpfl.federation.settings import RENAMED
from ttpfl.report.overview import overview
from ttpfl.report.page import page
from ttpfl.report.reproduction import reproduction
from ttpfl.report.study import study
from ttpfl.report.tables import markdown, replaced
from ttpfl.results.files import load, load_all
from ttpfl.results.schema import COST

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


OVERVIEW = [
    f"results/{name}.json"
    for name in (
        "har-persons",
        "plus-cifar10-cnn-paper-hybrid",
        "plus-cifar10-cnn-paper-label",
        "spoken-digits",
        "heart-hospitals",
        "ecg-patients-cpu",
    )
]


def test_the_page_of_results_shows_all() -> None:
    text = (ROOT / "docs/results.md").read_text()
    tables = "\n\n".join(markdown(results) for results in load_all([ROOT / "results"]))
    assert text == replaced(text, tables), "run: ttpfl results table results --into docs/results.md"


def test_the_front_page_and_the_page_of_results_show_the_overview() -> None:
    text = (ROOT / "README.md").read_text()
    found = overview(load_all(ROOT / name for name in OVERVIEW))
    assert text == replaced(text, found), f"run: ttpfl results overview {' '.join(OVERVIEW)} --into README.md"
    assert found in (ROOT / "docs/results.md").read_text()


def test_the_comparison_with_the_paper_shows_the_results() -> None:
    text = (ROOT / "docs/reproduction.md").read_text()
    found = reproduction(load_all([ROOT / "results"]))
    assert text == replaced(text, found), "run: ttpfl results paper results --into docs/reproduction.md"


def test_pages_say_what_cost_is_and_what_the_results_have() -> None:
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/performance.md"))
    for text in (readme, page):
        assert COST in " ".join(text.split())
    shown = {}
    for name in ("table5-cifar10-cnn-cpu", "table1-cifar10-resnet18-cpu"):
        (after,) = page.split(f"(`results/{name}.json`):")[1:]
        costs = re.findall(r"^\| `([a-z0-9-]+)` \| ([\d.]+) \|", after.split("\n\n")[1], re.M)
        lines = study(load(ROOT / "results" / f"{name}.json")).overall
        assert costs == [(label, f"{lines[label].time:.1f}") for label, _ in costs]
        assert len(costs) >= 8
        (shown[name],) = {dict(costs)[f"atp-{mode}"] for mode in ("batch", "online")}
    cnn, resnet = shown.values()
    assert f"costs {cnn} plain forward passes with the shallow CNN and {resnet} with ResNet-18" in readme
    ablation = study(load(ROOT / "results" / "table4-ablation-cnn-cpu.json")).overall
    assert f"`atp-params` costs {ablation['atp-params'].time:.1f}" in page
    assert f"`atp-stats` {ablation['atp-stats'].time:.1f}" in page


def test_of_what_was_not_run_a_page_says_why() -> None:
    _, not_run = (ROOT / "docs/results.md").read_text().split("## Not run")
    run = {json.loads(path.read_text())["recipe"]["name"] for path in FILES}
    assert re.findall(r"^\| `(.*?)` \|", not_run, re.M) == sorted({path.stem for path in RECIPES} - run)


def learned_by_sgd() -> dict[str, list[str]]:
    """Of results whose rates were learned by SGD, where recipes no longer do so: rounds, cohort and lr."""
    _, page = (ROOT / "docs/results.md").read_text().split("learned by SGD", 1)
    rows = re.findall(r"^\| `(.*?)` \| (\d+) \| (\d+|all) \| ([\d.]+) \|$", page, re.M)
    return {name: settings for name, *settings in rows}


LEARNING = ("learn.rounds", "learn.cohort", "learn.lr")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_are_of_the_recipes_as_they_stand(path: Path) -> None:
    """Whether target clients are looked at while rates are learned changes no figure in the tables."""
    results = json.loads(path.read_text())
    said = results["recipe"]
    changes = [f"{key}={json.dumps(value)}" for key, value in said["set"].items()]
    recipe = read(said["name"], said["preset"], changes)
    assert results["paper"] == recipe.tree.get("paper", {})
    if recipe.compares:
        assert {run["case"] for run in results["runs"]} == set(recipe.cases)
    for run in results["runs"] if recipe.compares else ():
        assert [entry["label"] for entry in run["entries"]] == [entry.label for entry in recipe.entries]
        was, now = run["config"], recipe.config(run["case"], run["seed"]).flat()
        was = {re.sub(r"\w+$", lambda key: RENAMED.get(key[0], key[0]), name): was[name] for name in was}
        both = was.keys() & now.keys() - {"learn.eval_every", "data.options"}
        if settings := learned_by_sgd().get(path.stem):
            assert [str(was[key] or "all") for key in LEARNING] == settings
            assert "learn.optimizer" not in was
            both -= {*LEARNING}
        assert len(both) > 40
        assert {key: was[key] for key in both} == {key: now[key] for key in both}
        assert was["data.options"].items() <= now["data.options"].items()  # once without defaults


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_result_names_what_it_was_made_of_and_can_be_reported(path: Path) -> None:
    results = json.loads(path.read_text())
    assert results["recipe"]["command"].startswith("ttpfl run ")
    assert {"ttpfl", "torch", "numpy", "python", "machine", "seconds"} <= set(results["made"])
    for run in results["runs"]:
        for entry in run["entries"]:
            assert len(entry["accuracy"]) == len(run["clients"])
    assert results["recipe"]["title"] in page(results, None)
