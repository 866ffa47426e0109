"""Recipes from end to end, on few digits."""

import json
from pathlib import Path

import numpy as np
import pytest

from ttpfl.evaluation import Evaluator
from ttpfl.evaluation.evaluator import plain
from ttpfl.experiment import recipe as recipes
from ttpfl.experiment import stages
from ttpfl.experiment.recipe import COMPARISON, read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.experiment.tables import accuracies, load, markdown
from ttpfl.experiment.workshop import Workshop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def shop_in(folder: Path) -> Workshop:
    return Workshop(Store(folder / "stages"), folder / "data", workers=0)


@pytest.mark.parametrize("name", recipes.known())
def test_every_recipe_runs(name: str, folder: Path) -> None:
    recipe = read(name, "smoke")
    results = run(recipe, shop_in(folder), folder / name, "ttpfl run")
    assert load(folder / name) == json.loads(json.dumps(results))
    for one in results["runs"]:
        if recipe.kind == COMPARISON:
            assert one["case"] in recipe.cases
            assert [entry["label"] for entry in one["entries"]] == [entry.label for entry in recipe.entries]
        for entry in one["entries"]:
            assert len(entry["accuracy"]) == len(one["clients"]) > 0
    assert results["recipe"]["title"] in markdown(results)
    again = shop_in(folder)
    assert run(recipe, again, folder / name, "ttpfl run") == results
    assert again.store.computed == []  # everything was there


def test_a_change_repeats_only_what_follows_from_it(tmp_path: Path) -> None:
    def computed(*changes: str) -> set[str]:
        shop = shop_in(tmp_path)
        run(read("demo", "smoke", ["tune.clients=2", *changes]), shop, tmp_path / "demo")
        return set(shop.store.computed)

    assert computed() == {"population", "model", "rates", "tuning", "comparison", "samples"}
    assert computed() == set()
    assert computed("title=other") == set()
    assert computed('methods=["none", "em", "lame", "atp-batch"]') == {"tuning", "comparison"}
    assert computed("learn.lr=0.25") == {"rates", "comparison", "samples"}
    assert computed("test.batch_size=10") == {"tuning", "comparison", "samples"}
    assert computed("train.rounds=2") == {"model", "rates", "tuning", "comparison", "samples"}
    assert computed("seeds=[0]") == set()


def test_more_rounds_go_on_with_the_run_that_is_there_to_the_same_bits(tmp_path: Path) -> None:
    def weights(folder: Path, *rounds: int) -> list[dict[str, object]]:
        shop, found = shop_in(folder), []
        for number in rounds:
            config = read("demo", "smoke", [f"train.rounds={number}"]).config("", 0)
            found.append({k: v.tolist() for k, v in stages.model(shop, config).state_dict().items()})
        return found

    one, three = weights(tmp_path / "growing", 1, 3)
    assert weights(tmp_path / "at-once", 3) == [three]
    assert weights(tmp_path / "shrinking", 3, 1) == [three, one]  # fewer rounds than there are: anew
    shared = list((tmp_path / "growing" / "stages" / "training").iterdir())
    assert len(shared) == 1


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read("demo", "smoke")
    undisturbed = run(recipe, shop_in(tmp_path / "a"), tmp_path / "a" / "demo")
    judged = stages.judged

    def interrupted(shop: Workshop, config: object, chosen: stages.Chosen) -> object:
        if chosen.method.name == "atp-batch":
            raise KeyboardInterrupt
        return judged(shop, config, chosen)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "judged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, shop_in(tmp_path / "b"), tmp_path / "b" / "demo")
    monkeypatch.undo()
    shop = shop_in(tmp_path / "b")
    resumed = run(recipe, shop, tmp_path / "b" / "demo")
    assert set(shop.store.computed) == {"rates", "comparison", "samples"}
    for one, other in zip(undisturbed["runs"], resumed["runs"], strict=True):
        for entry, again in zip(one["entries"], other["entries"], strict=True):
            assert entry["accuracy"] == again["accuracy"]
            assert entry["loss"] == again["loss"]


def test_the_figures_are_those_of_the_model_at_the_clients(tmp_path: Path) -> None:
    """Without adaptation: counted by hand."""
    recipe, shop = read("demo", "smoke"), shop_in(tmp_path)
    results = run(recipe, shop, tmp_path / "demo")
    config = recipe.config("", 0)
    model, (population, answers, _) = stages.model(shop, config), shop.clients(config)
    for number, client in enumerate(population.target):
        x = np.concatenate([batch.numpy() for batch in client.stream(7)])
        right = (plain(model)(__import__("torch").from_numpy(x)).argmax(1) == answers[client.id]).double()
        assert results["runs"][0]["entries"][0]["accuracy"][number] == pytest.approx(float(right.mean()))
    cell = accuracies(results)["none"][""]
    assert cell[0] == pytest.approx(100 * Evaluator(population.target, answers).of_model(model)["accuracy"])


def test_samples_are_pictures_of_clients_with_answers(tmp_path: Path) -> None:
    recipe, shop = read("demo", "smoke"), shop_in(tmp_path)
    run(recipe, shop, tmp_path / "demo")
    found = json.loads((tmp_path / "demo" / "samples.json").read_text())
    assert found["after"] == "atp-batch"
    client = found["runs"][0]["clients"][0]
    assert {"size", "rgb", "label", "before", "after"} == set(client["images"][0])
    assert len(client["images"]) == 8


def test_tables_show_mean_and_spread_over_seeds_beside_the_paper() -> None:
    def one(seed: int, none: float, atp: float) -> dict[str, object]:
        entries = [{"label": "none", "accuracy": [none, none]}, {"label": "atp", "accuracy": [atp, atp]}]
        config = {"train.rounds": 40, "learn.rounds": 200}
        return {"case": "label", "seed": seed, "config": config, "entries": entries}

    results = {
        "recipe": {"title": "T", "name": "t", "preset": "cpu"},
        "made": {"seconds": {"model": 90.0}, "machine": "m"},
        "paper": {"atp": {"label": [76.23, 0.32]}},
        "runs": [one(0, 0.5, 0.7), one(1, 0.6, 0.7)],
    }
    table = markdown(results)
    assert "| none | 55.00±7.07 | 2.0 |" in table
    assert "| atp | 70.00±0.00 (76.23) | 1.0 |" in table
    assert "40 rounds of training, 2 seeds, 2 minutes on m" in table
