"""Recipes on persons: from a file of signals or a table to a report."""

import base64
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.page_reader import read as read_page
from tests.helpers.persons import CLASSES, write_signals, write_table
from ttpfl.data import federate
from ttpfl.errors import DataError, ModelError, RecipeError
from ttpfl.evaluation import Evaluator
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.report import page
from ttpfl.report.study import study
from ttpfl.report.tables import markdown
from ttpfl.results.files import SAMPLES, read_json

RECIPE = """
methods = ["none", "em", "atp-batch"]
data = {{ name = "{data}", {more} folds = 3 }}
model = {{ name = "{network}" }}
train = {{ rounds = 2, batch_size = 8 }}
learn = {{ rounds = 2, batch_size = 8 }}
"""


def computed(folder: Path, text: str) -> tuple[dict, dict]:
    (folder / "own.toml").write_text(text)
    context = ExperimentContext(Store(folder / "stages"), folder / "data", workers=0)
    results = run(read(folder / "own.toml"), context, folder / "out")
    return results, read_json(folder / "out" / SAMPLES)


@pytest.mark.parametrize("network", ["signal_cnn", "sequence_transformer", "mlp"])
def test_signals(tmp_path: Path, network: str) -> None:
    arrays = write_signals(tmp_path / "data")
    results, samples = computed(tmp_path, RECIPE.format(data="arrays", network=network, more="fold = 1,"))
    (one,) = results["runs"]
    assert one["population"]["classes"] == list(CLASSES)
    assert [client["size"] for client in one["clients"]] == [30, 30]
    assert one["config"]["data.fold"] == 1
    shown = samples["runs"][0]["clients"][0]
    own = np.array(arrays["x"])[arrays["client"] == int(shown["id"])]
    values = np.array(shown["images"][0]["channels"])
    # Normalised: the shape of one of the person's signals, up to a factor and an offset per channel.
    alike = [
        min(np.corrcoef(values[channel], signal[channel])[0, 1] for channel in range(2)) for signal in own
    ]
    assert max(alike) > 0.9999
    document = read_page(page(results, samples))
    figure = document.one("figure", id="pictures-figure")
    assert "Signals as the model sees them" in figure.one("figcaption").text
    assert document.one("section", id="breakdown").one("h2").text.strip() == "By client"
    assert f"{shown['id']}, {shown['id']}" not in figure.text
    assert len(figure.all("svg")) == sum(len(client["images"]) for client in samples["runs"][0]["clients"])


def test_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "data" / "table.csv", sites=6)
    results, samples = computed(tmp_path, RECIPE.format(data="table", network="mlp", more=""))
    assert len(samples["runs"][0]["clients"][0]["images"][0]["features"]) == 2
    document = read_page(page(results, samples))
    assert "Rows as the model sees them" in document.one("figure", id="pictures-figure").text
    assert "no client is both a source and a target client" in document.one("section", id="audit").text


def test_spectra_are_shown_as_images(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    x, client = random.normal(size=(60, 1, 20, 20)), np.repeat(np.arange(6), 10)
    np.savez(tmp_path / "data" / "data.npz", x=x, y=np.arange(60) % 3, client=client)
    results, samples = computed(tmp_path, RECIPE.format(data="arrays", network="shallow_cnn", more=""))
    image = samples["runs"][0]["clients"][0]["images"][0]
    assert image["size"] == [20, 20]
    assert len(base64.b64decode(image["rgb"])) == 1200
    assert len(results["runs"][0]["entries"]) == 3


def test_mistakes_are_found_before_training(tmp_path: Path) -> None:
    write_signals(tmp_path / "data")
    with pytest.raises(ModelError, match="does not accept samples of 2x16"):
        computed(tmp_path, RECIPE.format(data="arrays", network="resnet18", more=""))
    with pytest.raises(DataError, match="fold must be an integer from 0 to 2, got 3"):
        computed(tmp_path, RECIPE.format(data="arrays", network="signal_cnn", more="fold = 3,"))
    with pytest.raises(DataError, match="unknown option 'shift' of your own clients"):
        computed(tmp_path, RECIPE.format(data="arrays", network="signal_cnn", more='shift = "label",'))


def test_another_headline_and_further_orders(tmp_path: Path) -> None:
    """Rare classes decide, and the same streams come as recorded beside shuffled."""
    write_signals(tmp_path / "data")
    text = 'headline = "balanced_accuracy"\norders = ["recorded", "label-sorted", "continual"]\n'
    text += RECIPE.format(data="arrays", network="signal_cnn", more="")
    results, samples = computed(tmp_path, text)
    (one,) = results["runs"]
    assert list(one["orders"]) == ["recorded", "label-sorted", "continual"]
    by_order = {"iid": one["entries"], **one["orders"]}
    plain = {order: entries[0] for order, entries in by_order.items()}
    assert plain["iid"]["label"] == "none"
    for order in one["orders"]:  # without adaptation, the order does not matter
        assert plain[order]["balanced_accuracy"] == pytest.approx(plain["iid"]["balanced_accuracy"])
        assert plain[order]["loss"] == pytest.approx(plain["iid"]["loss"])
    adapted = {order: entries[2]["loss"] for order, entries in by_order.items()}
    assert adapted["recorded"] != adapted["iid"]
    found = study(results)
    mean = 100 * np.mean(one["entries"][2]["balanced_accuracy"])
    assert found.metric == "balanced accuracy"
    assert found.overall["atp-batch"].accuracy == pytest.approx(mean)
    assert found.overall["atp-batch"].scores["accuracy"] == pytest.approx(
        100 * np.mean(one["entries"][2]["accuracy"])
    )
    document = read_page(page(results, samples))
    assert "balanced accuracy" in document.one("header").text
    shown = document.one("section", id="streams").one("table").text
    assert f"{100 * np.mean(one['orders']['recorded'][2]['balanced_accuracy']):.2f}" in shown
    text = markdown(results)
    assert "balanced accuracy, as recorded | lost over a point (of 2) | worst" in text
    for place, entries in enumerate(by_order.values()):
        changes = 100 * np.subtract(entries[2]["balanced_accuracy"], entries[0]["balanced_accuracy"])
        (line,) = [line for line in text.split("\n\n")[-1].splitlines() if "atp-batch" in line]
        mean, lost, worst = line.strip("| ").split(" | ")[1 + 3 * place : 4 + 3 * place]
        assert float(mean) == pytest.approx(100 * np.mean(entries[2]["balanced_accuracy"]), abs=0.01)
        assert int(lost) == (changes < -1).sum()
        assert float(worst.replace("\N{MINUS SIGN}", "-")) == pytest.approx(changes.min(), abs=0.01)


def test_recorded_order_is_that_of_the_file(tmp_path: Path) -> None:
    arrays = write_signals(tmp_path)
    population, labels, _ = federate("arrays", data_dir=tmp_path, held_out="4")
    own = np.array(arrays["y"])[arrays["client"] == 4]
    recorded = Evaluator(population.target, labels, order="recorded").stream(0)
    assert recorded[1].tolist() == own.tolist()
    assert torch.equal(torch.cat(recorded[0]), population.target[0].tensor(np.arange(30)))
    shuffled = Evaluator(population.target, labels).stream(0)
    assert shuffled[1].tolist() != own.tolist()
    assert sorted(shuffled[2].tolist()) == list(range(30))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('headline = "f1"', "unknown headline 'f1'"),
        ('orders = ["random"]', "unknown order 'random' in orders"),
        ('orders = ["iid"]', "orders has 'iid', which is test.order already"),
    ],
)
def test_bad_headlines_and_orders(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        computed(tmp_path, f"{line}\n{RECIPE.format(data='arrays', network='signal_cnn', more='')}")
