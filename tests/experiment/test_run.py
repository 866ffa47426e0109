"""Recipes from end to end, on few digits."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.helpers.own_clients import OWN, own_clients
from ttpfl.core.personalizer import Personalizer
from ttpfl.errors import DataError, DataMissingError, FederationError, MethodError, ModelError
from ttpfl.evaluation import Evaluator
from ttpfl.evaluation.evaluator import plain
from ttpfl.experiment import recipe as recipes
from ttpfl.experiment import samples, stages, store, toml
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.provenance import versions
from ttpfl.experiment.recipe import COMPARISON, read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.methods import base
from ttpfl.methods.em import EM
from ttpfl.models import save_model, shallow_cnn
from ttpfl.report import write_report
from ttpfl.report.tables import accuracies, markdown
from ttpfl.results.files import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def context_in(folder: Path, data: Path | None = None) -> ExperimentContext:
    return ExperimentContext(Store(folder / "stages"), data or folder / "data", workers=0)


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_runs(name: str, folder: Path) -> None:
    recipe = read(name, "smoke")
    results = run(recipe, context_in(folder), folder / name, "ttpfl run")
    assert load(folder / name) == json.loads(json.dumps(results))
    for one in results["runs"]:
        if recipe.kind == COMPARISON:
            assert one["case"] in recipe.cases
            assert [entry["label"] for entry in one["entries"]] == [entry.label for entry in recipe.entries]
        for entry in one["entries"]:
            assert len(entry["accuracy"]) == len(one["clients"]) > 0
    assert results["recipe"]["title"] in markdown(results)
    again = context_in(folder)
    assert run(recipe, again, folder / name, "ttpfl run") == results
    assert again.store.computed == []  # everything was there


def test_a_change_repeats_only_what_follows_from_it(tmp_path: Path) -> None:
    def computed(*changes: str) -> set[str]:
        context = context_in(tmp_path)
        # Target clients are not looked at on the way: what is learned does not depend on how they are tested.
        recipe = read("demo", "smoke", ["tune.clients=2", "learn.eval_every=0", *changes])
        run(recipe, context, tmp_path / "demo")
        return set(context.store.computed)

    assert computed() == {"population", "model", "rates", "tuning", "comparison", "samples"}
    assert computed() == set()
    assert computed("title=other") == set()
    assert computed('methods=["none", "em", "lame", "atp-batch"]') == {"tuning", "comparison"}
    assert computed("learn.prior=false") == {"rates", "comparison", "samples"}
    assert computed("test.batch_size=10") == {"tuning", "comparison", "samples"}
    assert computed("train.rounds=2") == {"model", "rates", "tuning", "comparison", "samples"}
    assert computed("seeds=[0]") == set()


def test_a_cohort_that_is_too_large_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    with pytest.raises(FederationError, match="cohort is 99, but there are only 6 clients"):
        run(read("demo", "smoke", ["learn.cohort=99"]), context, tmp_path / "demo")
    assert context.store.computed == ["population"]


def test_more_rounds_go_on_with_the_run_that_is_there_to_the_same_bits(tmp_path: Path) -> None:
    def weights(folder: Path, *rounds: int) -> list[dict[str, object]]:
        context, found = context_in(folder), []
        for number in rounds:
            config = read("demo", "smoke", [f"train.rounds={number}"]).config("", 0)
            found.append({k: v.tolist() for k, v in stages.model(context, config).state_dict().items()})
        return found

    one, three = weights(tmp_path / "growing", 1, 3)
    assert weights(tmp_path / "at-once", 3) == [three]
    assert weights(tmp_path / "shrinking", 3, 1) == [three, one]  # fewer rounds than there are: anew
    shared = list((tmp_path / "growing" / "stages" / "training").iterdir())
    assert len(shared) == 1


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read("demo", "smoke")
    undisturbed = run(recipe, context_in(tmp_path / "a"), tmp_path / "a" / "demo")
    judged = stages.judged

    def interrupted(
        context: ExperimentContext, config: object, chosen: stages.Chosen, progress: object
    ) -> object:
        if chosen.method.name == "atp-batch":
            raise KeyboardInterrupt
        return judged(context, config, chosen, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "judged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, context_in(tmp_path / "b"), tmp_path / "b" / "demo")
    monkeypatch.undo()
    context = context_in(tmp_path / "b")
    resumed = run(recipe, context, tmp_path / "b" / "demo")
    assert set(context.store.computed) == {"comparison", "samples"}
    for one, other in zip(undisturbed["runs"], resumed["runs"], strict=True):
        for entry, again in zip(one["entries"], other["entries"], strict=True):
            assert entry["accuracy"] == again["accuracy"]
            assert entry["loss"] == again["loss"]


def test_a_line_that_diverges_does_not_keep_the_others_from_being_computed(tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(OWN.replace('["none", "atp-batch"]', '["none", "em"]') + DIVERGING)
    own_clients(tmp_path / "data", 0)
    for _ in range(2):
        with pytest.raises(MethodError) as caught:
            run(read(recipe), context_in(tmp_path), tmp_path / "out")
        said = str(caught.value)
        assert [f"tent, far too fast (case {case}, seed 0): tent fails at" in said for case in "ab"] == [1, 1]
        assert "client 'c'" in said
        assert "All other entries are computed and stored" in said
        assert not (tmp_path / "out" / "results.json").exists()  # where it would be missing unnoticed
    context = context_in(tmp_path)
    run(read(recipe, changes=["entries=[]"]), context, tmp_path / "out")
    assert context.store.computed == []


def test_what_ends_a_run_says_where_it_was(tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(OWN.replace("batch_size = 4", "lr = 1e300") + "cases = { a = {}, b = {} }\n")
    own_clients(tmp_path / "data", 0)
    with pytest.raises(MethodError) as caught:
        run(read(recipe), context_in(tmp_path), tmp_path / "out")
    assert "atp-batch (case a, seed 0)" in str(caught.value)
    assert "atp-batch (case b, seed 0)" in str(caught.value)
    recipe.write_text(OWN.replace("train = {", "train = { lr = 1e300,") + "cases = { a = {}, b = {} }\n")
    with pytest.raises(FederationError) as caught_at_once:
        run(read(recipe), context_in(tmp_path), tmp_path / "out")
    assert caught_at_once.value.__notes__ == ["in case a, seed 0"]


def test_figures_that_an_earlier_version_kept_as_rows_are_used_again(tmp_path: Path) -> None:
    recipe, context = tmp_path / "own.toml", context_in(tmp_path)
    recipe.write_text(OWN)
    own_clients(tmp_path / "data", 0)
    entries = run(read(recipe), context, tmp_path / "out")["runs"][0]["entries"]
    kept = sorted((tmp_path / "stages" / "comparison").glob("*/done.json"))
    assert len(kept) == 2
    for path in kept:
        found = store.read(path)
        costs = {name: found["result"].pop(name) for name in ("time", "extra_bytes")}
        rows = [
            {**{name: column[0] for name, column in found["result"].items()}, "client": "c"}
            | {"cost": {name: column[0] for name, column in costs.items()}}
        ]  # of the only target client with labels
        store.write(path, {"result": {"rows": rows}, "files": found["files"]})
    again = context_in(tmp_path)
    assert run(read(recipe), again, tmp_path / "out")["runs"][0]["entries"] == entries
    assert again.store.computed == []


def test_the_figures_are_those_of_the_model_at_the_clients(tmp_path: Path) -> None:
    """Without adaptation: counted by hand."""
    recipe, context = read("demo", "smoke"), context_in(tmp_path)
    results = run(recipe, context, tmp_path / "demo")
    config = recipe.config("", 0)
    model, (population, answers, _) = stages.model(context, config), context.clients(config)
    for number, client in enumerate(population.target):
        x = np.concatenate([batch.numpy() for batch in client.stream(7)])
        right = (plain(model)(torch.from_numpy(x)).argmax(1) == answers[client.id]).double()
        assert results["runs"][0]["entries"][0]["accuracy"][number] == pytest.approx(float(right.mean()))
    cell = accuracies(results)["none"][""]
    assert cell[0] == pytest.approx(100 * Evaluator(population.target, answers).of_model(model)["accuracy"])


def test_samples_are_pictures_of_clients_with_answers(tmp_path: Path) -> None:
    recipe, context = read("demo", "smoke"), context_in(tmp_path)
    run(recipe, context, tmp_path / "demo")
    found = json.loads((tmp_path / "demo" / "samples.json").read_text())
    assert found["after"] == "atp-batch"
    client = found["runs"][0]["clients"][0]
    assert {"size", "rgb", "label", "before", "after"} == set(client["images"][0])
    assert len(client["images"]) == 8
    config = recipe.config("", 0)
    evaluator, model = stages.trial(context, config).evaluator, stages.model(context, config)
    number = next(n for n in evaluator.clients() if evaluator.target[n].id == client["id"])
    batches, labels, _ = evaluator.stream(number)
    adapter = Personalizer(model, stages.rates(context, config))
    changed = [int((plain(model)(x).argmax(1) != adapter(x).argmax(1)).sum()) for x in batches]
    assert (client["size"], client["changed"]) == (len(labels), sum(changed))
    classes = evaluator.target[number].info.classes
    shown = samples.drawn(len(labels), (0, *client["id"].encode()))
    assert [image["label"] for image in client["images"]] == [classes[labels[place]] for place in shown]


def test_every_image_is_as_likely_to_be_shown() -> None:
    """Whatever its prediction: 8 of 50 are shown, so each is in 640 of 4000 drawings, give or take 23."""
    counts = np.zeros(50, int)
    for seed in range(4000):
        shown = samples.drawn(50, (seed,))
        assert len(set(shown.tolist())) == samples.IMAGES == 8
        counts[shown] += 1
    assert abs(counts - 640).max() < 5 * 23


def test_samples_of_methods_that_are_compared_no_more_are_removed(tmp_path: Path) -> None:
    run(read("demo", "smoke"), context_in(tmp_path), tmp_path / "demo")
    assert (tmp_path / "demo" / "samples.json").exists()
    run(read("demo", "smoke", ['methods=["none", "em"]']), context_in(tmp_path), tmp_path / "demo")
    assert not (tmp_path / "demo" / "samples.json").exists()


DIVERGING = """
model = { name = "resnet18" }
cases = { a = {}, b = { train.lr = 0.02 } }
entries = [{ label = "tent, far too fast", method = "tent", config = { lr = 1e30 } }]
"""


def test_clients_of_ones_own_and_data_that_changed(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    recipe = read(tmp_path / "own.toml")
    own_clients(tmp_path / "data", 0)
    (one,) = run(recipe, context_in(tmp_path), tmp_path / "demo")["runs"]
    assert [client["id"] for client in one["clients"]] == ["c"]  # nobody can judge the other
    assert all(len(entry["accuracy"]) == 1 for entry in one["entries"])
    assert not any("source and to a target" in check for check in one["population"]["checks"])  # unchecked
    assert write_report(tmp_path / "demo").exists()
    own_clients(tmp_path / "data", 1)
    with pytest.raises(DataError, match=r"arrays has changed since the stages in .* were computed"):
        run(recipe, context_in(tmp_path), tmp_path / "demo")
    (tmp_path / "data" / "target" / "c.npz").unlink()
    with pytest.raises(DataError, match="the target clients of arrays have no labels"):
        run(recipe, context_in(tmp_path / "anew", tmp_path / "data"), tmp_path / "anew")


def test_pictures_that_are_not_square_are_refused_where_the_network_cannot_take_them(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    own_clients(tmp_path / "data", 0, (20, 28))
    with pytest.raises(ModelError, match=r"images are 20x28, .* such as with data\.options\.image_size=28"):
        run(read(tmp_path / "own.toml"), context_in(tmp_path), tmp_path / "own")
    for change in ("data.options.image_size=28", "model.name=resnet18"):
        recipe = read(tmp_path / "own.toml", None, [change, "learn.lr=0.001"])
        (one,) = run(recipe, context_in(tmp_path), tmp_path / "own")["runs"]
        assert all(len(entry["accuracy"]) == 1 for entry in one["entries"])


def test_weights_that_changed_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for seed in (0, 1):
        torch.manual_seed(seed)
        save_model(tmp_path / "data" / "begin.safetensors", shallow_cnn(10, image_size=28))
        recipe = read("demo", "smoke", ["model.weights=begin.safetensors", 'methods=["none"]'])
        if seed == 0:
            run(recipe, context_in(tmp_path), tmp_path / "demo")
    with pytest.raises(DataError, match=r"begin\.safetensors has changed since the stages"):
        run(recipe, context_in(tmp_path), tmp_path / "demo")


def test_missing_weights_are_noticed_first(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    with pytest.raises(DataMissingError) as caught:
        run(read("demo", "smoke", ["model.weights=weights/none.pth"]), context, tmp_path / "demo")
    said = str(caught.value)
    assert str(tmp_path / "data" / "weights" / "none.pth") in said
    assert "--data-dir" in said
    assert "--set model.weights=FILE" in said
    assert context.store.computed == []


def test_curves_of_learning_follow_the_streams_of_the_test(tmp_path: Path) -> None:
    for change in ("test.batch_size=20", "test.batch_size=5", "test.order=label-sorted"):
        changes = ["learn.eval_every=1", "learn.lr=5.0", "learn.rounds=3", "train.rounds=2", change]
        changes += ["learn.prior=false", 'methods=["atp-online"]']
        (one,) = run(read("demo", "smoke", changes), context_in(tmp_path), tmp_path / "demo")["runs"]
        (entry,) = one["entries"]
        seen = entry["rates"]["history"][-1]["target"]
        assert seen["online"] == pytest.approx(np.mean(entry["accuracy"]))
        assert seen["online_loss"] == pytest.approx(np.mean(entry["loss"]), rel=1e-9)


def test_target_clients_are_looked_at_during_learning(tmp_path: Path) -> None:
    recipe = read("demo", "smoke", ["learn.eval_every=1", "train.eval_every=1"])
    (one,) = run(recipe, context_in(tmp_path), tmp_path / "demo")["runs"]
    entry = next(entry for entry in one["entries"] if entry["rates"])
    assert set(one["training"][0]["target"]) == {"accuracy", "loss"}
    seen = entry["rates"]["history"][-1]["target"]
    assert set(seen) == {"batch", "batch_loss", "online", "online_loss"}
    assert seen["batch"] == pytest.approx(np.mean(entry["accuracy"]))
    assert seen["batch_loss"] == pytest.approx(np.mean(entry["loss"]), rel=1e-5)


def test_the_demo_shows_target_clients_on_the_way_and_learns_the_same_rates(tmp_path: Path) -> None:
    learn = read("demo").config("", 0).learn
    assert learn.rounds // learn.eval_every == 5
    found = []
    for name, every in {"seen": 2, "unseen": 0}.items():
        recipe = read("demo", "smoke", ["learn.rounds=4", f"learn.eval_every={every}"])
        (one,) = run(recipe, context_in(tmp_path), tmp_path / name)["runs"]
        found.append(next(entry["rates"] for entry in one["entries"] if entry["rates"]))
    seen, unseen = found
    evaluated = ["target" in record for record in seen["history"]]
    assert evaluated == [number % 2 == 1 for number in range(len(evaluated))]
    assert any(evaluated)
    assert seen["modules"] == unseen["modules"]  # target clients decide nothing
    missing = "Target clients were not evaluated during the run"
    pages = [write_report(tmp_path / name).read_text() for name in ("seen", "unseen")]
    assert [missing in page for page in pages] == [False, True]


OWN_NETWORK = """
from torch import nn


def net(num_classes, image_size):
    inside = nn.{activation}()
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, 4), inside, nn.Linear(4, num_classes))
"""
OWN_METHOD = """
from dataclasses import dataclass

from ttpfl.methods import Method, make, tunable


@dataclass(frozen=True)
class Own(Method):
    iterations: int = tunable(1, "of EM", {grid})

    def adapter(self, model, knowledge):
        return make("em", iterations=self.iterations).adapter(model, knowledge)
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Writes a module of the user's own, and imports it as it is now."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return write


def test_code_of_ones_own_that_changed_computes_anew(
    tmp_path: Path, own_code: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(activation: str, grid: tuple[int, ...]) -> set[str]:
        own_code("own_network", OWN_NETWORK.format(activation=activation))
        own = own_code("own_method", OWN_METHOD.format(grid=grid))
        monkeypatch.setattr(base, "_methods", dict(base._methods))
        base._methods.pop("own", None)
        base.method("own")(own.Own)
        changes = ["model.name=own_network:net", 'methods=["none", "own"]', "tune.clients=2"]
        context = context_in(tmp_path)
        run(read("demo", "smoke", changes), context, tmp_path / "demo")
        return set(context.store.computed)

    assert computed("ReLU", (1, 2)) == {"population", "model", "tuning", "comparison"}
    assert computed("ReLU", (1, 2)) == set()
    assert computed("ReLU", (1, 3)) == {"tuning", "comparison"}
    assert computed("Tanh", (1, 3)) == {"model", "tuning", "comparison"}


def test_the_grid_of_a_method_decides_about_its_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried() -> list[int]:
        recipe = read("demo", "smoke", ["tune.clients=2", 'methods=["em"]'])
        (one,) = run(recipe, context_in(tmp_path), tmp_path / "demo")["runs"]
        return [row["iterations"] for row in one["entries"][0]["tuning"]["table"]]

    tried()
    monkeypatch.setattr(EM, "grid", classmethod(lambda cls: {"iterations": (3, 7)}))
    assert tried() == [3, 7]


def test_results_say_what_each_stage_was_computed_with(tmp_path: Path) -> None:
    recipe = read("demo", "smoke", ['methods=["none"]'])
    made = run(recipe, context_in(tmp_path), tmp_path / "demo")["made"]
    assert made["stages"] == {stage: [versions()] for stage in ("population", "model", "comparison")}
    (kept,) = (tmp_path / "stages" / "model").glob("*/made-with.json")
    kept.write_text(json.dumps({"versions": [{"ttpfl": "0.0.1", "torch": "2.0"}]}))
    for file in (tmp_path / "stages" / "comparison").glob("*/made-with.json"):
        file.unlink()  # as in a store of earlier days
    again = run(recipe, context_in(tmp_path), tmp_path / "demo")["made"]["stages"]
    assert again == {
        "population": [versions()],
        "model": [{"ttpfl": "0.0.1", "torch": "2.0"}],
        "comparison": [],
    }


def test_a_stage_that_goes_on_with_another_version_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path) -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "versions", lambda: {"ttpfl": "old"})
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).get("sum", {}, interrupted)
    monkeypatch.setattr(store, "versions", lambda: {"ttpfl": "new"})
    kept = Store(tmp_path)
    kept.get("sum", {}, lambda folder: {"is": 3})
    assert kept.versions == {"sum": [{"ttpfl": "old"}, {"ttpfl": "new"}]}


@pytest.mark.parametrize("file", ["done.json", "seconds.json", "made-with.json"])
@pytest.mark.parametrize("content", ["", "[1, 2]", '{"is": 3'])
def test_a_damaged_stage_is_computed_again(file: str, content: str, tmp_path: Path) -> None:
    def of_three(kept: Store) -> dict[str, object]:
        return kept.get("sum", {"of": 3}, lambda folder: {"is": 3})

    of_three(Store(tmp_path))
    (damaged,) = tmp_path.glob(f"sum/*/{file}")
    damaged.write_text(content)
    again = Store(tmp_path)
    assert of_three(again) == {"is": 3}
    assert again.computed == ["sum"] * (file == "done.json")
    assert again.seconds["sum"] >= 0
    assert len(again.versions["sum"]) <= 1
    last = Store(tmp_path)
    assert of_three(last) == {"is": 3}
    assert last.computed == []


def test_results_hold_the_recipe_that_repeats_them(tmp_path: Path) -> None:
    recipe = read("demo", "smoke", ['methods=["none"]', "train.rounds=2"])
    said = run(recipe, context_in(tmp_path), tmp_path / "demo")["recipe"]
    file = tmp_path / "again.toml"
    file.write_text(toml.written(said["content"], ()))
    assert read(file).tree == recipe.tree
    assert read(file).hash == said["hash"]


def test_the_time_of_sample_images_is_in_the_results(tmp_path: Path) -> None:
    made = run(read("demo", "smoke"), context_in(tmp_path), tmp_path / "demo")["made"]
    assert "samples" in made["seconds"]
    assert "samples" in made["stages"]
