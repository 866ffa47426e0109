"""Recipes on persons: from a file of signals or a table to a report."""

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.page_reader import read as read_page
from tests.helpers.persons import CLASSES, write_signals, write_table
from ttpfl.errors import DataError, ModelError
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.report import page
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
