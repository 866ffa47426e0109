"""Models and rates behind results: exported, described, and continued from to the same figures."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tests.helpers.own_clients import OWN, own_clients
from ttpfl.cli import app
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.errors import DataError, ModelError, ReportError
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.export import export
from ttpfl.experiment.exported import Exported
from ttpfl.experiment.recipe import Recipe, read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.models import load_model, save_model
from ttpfl.report.model_card import model_card
from ttpfl.results.export_files import INDEX, read_export, write_export
from ttpfl.results.schema import Results

# Cases b and c share a model and rates. The last entry has other rates: those of one more round.
CASES = """
[cases.a]
train = { rounds = 2 }
[cases.b]
[cases.c]
test = { batch_size = 4 }
[[entries]]
label = "atp, 2 rounds"
method = "atp-batch"
rates = { learn = { rounds = 2 } }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in `runs`, its recipe and its export."""
    folder = tmp_path_factory.mktemp("made")
    own_clients(folder / "data", 0)
    learned = 'optimizer = "sgd", lr = 1.0, check = false, '  # so that rates move, though images are noise
    (folder / "own.toml").write_text(OWN.replace("learn = { ", f"learn = {{ {learned}") + CASES)
    results = run(recipe_in(folder), context_in(folder), folder / "runs", "ttpfl run own.toml --preset paper")
    export(results, Store(folder / "runs" / "stages"), folder / "export")
    return folder


def recipe_in(folder: Path, *changes: str) -> Recipe:
    return read(folder / "own.toml", changes=changes)


def context_in(folder: Path, out: Path | None = None, exported: Path | None = None) -> ExperimentContext:
    store = Store((out or folder / "runs") / "stages")
    source = None if exported is None else Exported(exported)
    return ExperimentContext(store, folder / "data", workers=0, exported=source)


def results_in(folder: Path) -> Results:
    content: Results = json.loads((folder / "runs" / "results.json").read_text())
    return content


def figures(results: Results) -> list[Any]:
    """All that does not depend on the machine: every client's metrics, the rates and the histories."""
    entries = [
        {key: value for key, value in entry.items() if key not in ("time", "extra_bytes")}
        for one in results["runs"]
        for entry in one["entries"]
    ]
    return [entries, [one["training"] for one in results["runs"]]]


def test_a_run_from_an_export_has_the_same_figures_and_trains_nothing(made: Path, tmp_path: Path) -> None:
    context = context_in(made, tmp_path, made / "export")
    again = run(recipe_in(made), context, tmp_path / "out")
    assert set(context.store.computed) == {"population", "comparison", "samples"}
    first = results_in(made)
    assert figures(again) == figures(first)
    losses = {entry["label"]: entry["loss"] for entry in again["runs"][0]["entries"]}
    assert losses["none"] != losses["atp-batch"]  # so the rates matter
    for stage in ("model", "rates"):  # the time and the versions of where they were computed
        assert again["made"]["seconds"][stage] == first["made"]["seconds"][stage]
        assert again["made"]["stages"][stage] == first["made"]["stages"][stage]
    later = context_in(made, tmp_path)
    run(recipe_in(made), later, tmp_path / "out")
    assert later.store.computed == []  # the folder is like any other


def test_cases_share_the_files_that_they_share(made: Path) -> None:
    files = {entry["file"]: entry for entry in read_export(made / "export")["files"]}
    assert {name: entry["uses"] for name, entry in files.items()} == {
        "a-seed-0/model.safetensors": ["case a, seed 0"],
        "a-seed-0/rates-atp-batch.safetensors": ["case a, seed 0: atp-batch"],
        "a-seed-0/rates-atp-2-rounds.safetensors": ["case a, seed 0: atp, 2 rounds"],
        "b-seed-0/model.safetensors": ["case b, seed 0", "case c, seed 0"],
        "b-seed-0/rates-atp-batch.safetensors": ["case b, seed 0: atp-batch", "case c, seed 0: atp-batch"],
        "b-seed-0/rates-atp-2-rounds.safetensors": [
            "case b, seed 0: atp, 2 rounds",
            "case c, seed 0: atp, 2 rounds",
        ],
    }
    for name, entry in files.items():
        assert hashlib.sha256((made / "export" / name).read_bytes()).hexdigest() == entry["sha256"]


def test_settings_with_the_same_result_share_a_file(made: Path, tmp_path: Path) -> None:
    """Learning may end before the maximum number of rounds, so that a higher one changes nothing."""
    shutil.copytree(made / "runs" / "stages", tmp_path / "stages")
    store = Store(tmp_path / "stages")
    first = next(store.finished("rates", ["rates.safetensors"]))

    def same(folder: Path) -> dict[str, Any]:
        shutil.copy(first.files["rates.safetensors"], folder)
        return first.result

    longer = {**first.inputs, "rounds": 99}
    store.get("rates", longer, same, ["rates.safetensors"])
    files = export(results_in(made), store, tmp_path / "out")["files"]
    assert len(files) == len(read_export(made / "export")["files"])
    (shared,) = [entry["inputs"] for entry in files if longer in entry["inputs"]]
    assert len(shared) == 2
    assert first.inputs in shared


def test_the_card_says_what_it_is_and_its_lines_of_python_work(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = model_card(results_in(made), read_export(made / "export"))
    for entry in read_export(made / "export")["files"]:
        assert f"| `{entry['file']}` | {'; '.join(entry['uses'])} | `{entry['sha256']}` |" in card
    assert "ttpfl run own.toml --preset paper --models FOLDER" in card
    assert "Weights trained on arrays: see its licence." in card
    assert f"| torch | {results_in(made)['made']['torch']} |" in card  # type: ignore[typeddict-item]
    (lines,) = re.findall(r"```python\n(.*?)```", card, re.S)
    model, signature = load_model(made / "export/a-seed-0/model.safetensors")
    rates = Rates.load(made / "export/a-seed-0/rates-atp-batch.safetensors", model=model)
    images = torch.rand(4, 3, *signature["signature"]["image_size"])
    monkeypatch.chdir(made / "export")
    names: dict[str, Any] = {"images": images}
    exec(lines, names)
    assert torch.equal(names["logits"], Personalizer(model, rates).predict(images))


def test_settings_that_differ_are_named_before_anything_is_computed(made: Path, tmp_path: Path) -> None:
    context = context_in(made, tmp_path, made / "export")
    with pytest.raises(ModelError, match=r"export has no model .*a-seed-0.*train.lr is .*not 0.5.*--models"):
        run(recipe_in(made, "train.lr=0.5"), context, tmp_path / "out")
    assert context.store.computed == []


def test_rates_that_the_export_lacks_are_learned(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = context_in(made, tmp_path, made / "export")
    changes = ('only=["b"]', "entries=[]", "learn.batch_size=5")
    run(recipe_in(made, *changes), context, tmp_path / "out")
    assert set(context.store.computed) == {"population", "rates", "comparison", "samples"}
    assert "has no rates for these settings: they are learned" in caplog.text


def test_other_clients_are_refused(made: Path, tmp_path: Path) -> None:
    own_clients(tmp_path / "data", 1)
    context = context_in(tmp_path, exported=made / "export")
    with pytest.raises(DataError, match=r"a-seed-0/model.safetensors was trained on clients with the hash"):
        run(recipe_in(made), context, tmp_path / "out")
    assert context.store.computed == ["population"]


def test_a_model_computed_here_is_not_mixed_with_another(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "runs", tmp_path / "runs")
    shutil.copytree(made / "export", tmp_path / "export")
    index, path = read_export(tmp_path / "export"), tmp_path / "export/a-seed-0/model.safetensors"
    model, card = load_model(path)
    next(model.parameters()).data.add_(1)
    save_model(path, model, **{key: card[key] for key in ("build", "population", "signature")})
    index["files"][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    write_export(tmp_path / "export", results_in(made), index["files"])
    with pytest.raises(
        DataError, match=r"computed here and differs from .*model.safetensors: use another --out"
    ):
        run(recipe_in(made), context_in(made, tmp_path / "runs", tmp_path / "export"), tmp_path / "out")


def test_damage_is_noticed(made: Path, tmp_path: Path) -> None:
    def changed(name: str, content: bytes | None) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(made / "export", folder)
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        return folder

    def used(folder: Path) -> None:
        run(recipe_in(made), context_in(made, folder, folder), folder / "out")

    model, index = "a-seed-0/model.safetensors", (made / "export" / INDEX).read_bytes()
    whole = bytearray((made / "export" / model).read_bytes())
    whole[-1] ^= 1
    with pytest.raises(ModelError, match=r"model.safetensors is damaged .*download it again"):
        used(changed(model, bytes(whole)))
    with pytest.raises(DataError, match=r"model.safetensors does not exist"):
        used(changed(model, None))
    with pytest.raises(ReportError, match=r"export.json does not exist"):
        used(changed(INDEX, None))
    with pytest.raises(ReportError, match=r"export.json is damaged"):
        used(changed(INDEX, index.replace(b'"seconds":', b'"seconds":1', 1)))


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "a\\b", ""])
def test_an_index_names_only_files_of_its_folder(made: Path, tmp_path: Path, file: str) -> None:
    files = read_export(made / "export")["files"]
    write_export(tmp_path, results_in(made), [{**files[0], "file": file}])
    with pytest.raises(ReportError, match="not a file of an export"):
        read_export(tmp_path)


def test_results_of_another_run_are_not_exported(made: Path, tmp_path: Path) -> None:
    store, results = Store(made / "runs" / "stages"), results_in(made)
    with pytest.raises(ReportError, match="not an empty folder"):
        export(results, store, made / "export")
    with pytest.raises(ReportError, match=r"stages/model has no model .*case a, seed 0.*--runs"):
        export(results, Store(tmp_path / "stages"), tmp_path / "out")
    results["runs"][0]["training"][0]["train_loss"] += 1  # type: ignore[typeddict-item]
    with pytest.raises(ReportError, match=r"has no model that these results were computed with"):
        export(results, store, tmp_path / "out")
    del results["recipe"]["hash"]
    with pytest.raises(ReportError, match="name those of `ttpfl run`"):
        export(results, store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_from_the_command_line_on_the_smoke_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def ttpfl(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    smoke = ("run", "demo", "--preset", "smoke", "--workers", "0", "--data-dir", "data")
    first = ttpfl(*smoke)
    written = ttpfl("results", "export", "runs/demo-smoke", "--out", "published")
    assert [Path(file).name for file in written["files"]] == [
        "model.safetensors",
        "rates-atp-batch.safetensors",
    ]
    assert "# Digits from four sources: one held out" in Path("published/README.md").read_text()
    again = ttpfl(*smoke, "--models", "published", "--out", "empty")
    assert again["accuracy"] == first["accuracy"]
    one, other = (json.loads(Path(found["results"]).read_text()) for found in (first, again))
    assert figures(one) == figures(other)
