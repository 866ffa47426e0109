"""Recipes: what they may say, and what is refused."""

import re
import tomllib
from pathlib import Path

import pytest

from ttpfl.errors import FederationError, RecipeError
from ttpfl.experiment import recipe as recipes
from ttpfl.experiment.config import Config, merged
from ttpfl.experiment.recipe import COMPARISON, Recipe, read
from ttpfl.experiment.toml import complete

SMALL = """
title = "small"
seeds = [0, 1]
methods = ["none", "atp-params"]
[data]
name = "digits"
[train]
rounds = 5
[cases.a]
data.shift = "label"
[cases.b]
train.rounds = 7
[[entries]]
label = "other rates"
method = "atp-batch"
rates.data.shift = "feature"
[presets.cpu]
train.rounds = 2
only = ["a"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return file


def test_cases_override_the_base_and_presets_override_the_base_below_them(path: Path) -> None:
    paper, cpu = read(path), read(path, "cpu")
    assert [paper.config(case, 0).train.rounds for case in paper.cases] == [5, 7]
    assert cpu.cases == ["a"]
    assert cpu.config("a", 0).train.rounds == 2
    assert cpu.config("b", 0).train.rounds == 7  # a case knows better than a preset
    assert paper.config("a", 0).data.choices == {"shift": "label"}
    assert paper.config("b", 0).data.choices == {}


def test_changes_override_everything_but_cases(path: Path) -> None:
    changed = read(path, "cpu", ["train.rounds=11", "seeds=[4]", "data.shift=hybrid", "cases.b.train.lr=0.5"])
    assert changed.config("a", 4).train.rounds == 11
    assert changed.seeds == [4]
    assert changed.config("b", 4).data.choices == {"shift": "hybrid"}
    assert changed.config("b", 4).train.lr == 0.5
    assert changed.hash != read(path, "cpu").hash


def test_the_seed_goes_everywhere(path: Path) -> None:
    config = read(path).config("a", 3)
    assert (config.seed, config.train.seed, config.learn.seed) == (3, 3, 3)


def test_rates_may_come_from_elsewhere(path: Path) -> None:
    recipe = read(path)
    none, params, other = recipe.entries
    assert recipe.rates_config("a", 0, params, "params").learn.only == "params"
    elsewhere = recipe.rates_config("a", 0, other, "all")
    assert elsewhere.data.choices == {"shift": "feature"}
    assert elsewhere.train == recipe.config("a", 0).train
    assert none.rates == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.round=3", "no key 'round' in train; did you mean 'rounds'?"),
        ("trian.rounds=3", "no key 'trian' in recipe; did you mean 'train'?"),
        ("train.rounds=many", "train.rounds is 'many': it takes a whole number"),
        ("train.rounds=true", "train.rounds is True: it takes a whole number"),
        ("data.shifts=label", "no key 'shifts' in data; did you mean 'shift'?"),
        ("train.seed=1", "no key 'seed' in train"),
        ("seeds=[-1]", "seeds are [-1]"),
        ('only=["c"]', "no key 'c' in cases"),
        ("cases.a.learning.lr=1.0", "no key 'learning' in cases.a; did you mean 'learn'?"),
        ("cases.a.learn.rate=1.0", "no key 'rate' in learn"),
        ('methods=["none", "none"]', "'none' is compared twice"),
        ("rounds", "--set rounds: it takes the form key=value"),
        ('methods=["none", "tentt"]', "'tentt': there is no method 'tentt'; did you mean 'tent'?"),
        (
            'entries=[{label="e", method="em", config={iteration=3}}]',
            "'e': em has no hyper-parameter 'iteration'",
        ),
        (
            'entries=[{label="f", method="fixed-rates", config={mode="x"}}]',
            "'f': mode is 'x': it must be one",
        ),
        ("train=3", "train in recipe is 3: it must be a dict"),
    ],
)
def test_mistakes_are_named_with_what_was_meant(path: Path, change: str, message: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        read(path, changes=[change])


def test_values_that_settings_refuse_are_refused_before_anything_runs(path: Path) -> None:
    with pytest.raises(FederationError, match="lr is -1"):
        read(path, changes=["learn.lr=-1"])


def test_unknown_recipes_and_presets(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no key 'cpus' in presets; did you mean 'cpu'"):
        read(path, "cpus")
    with pytest.raises(RecipeError, match="did you mean 'demo'"):
        read("dem")
    with pytest.raises(RecipeError, match="there is no recipe"):
        read(tmp_path / "missing.toml")
    (tmp_path / "broken.toml").write_text("title = ")
    with pytest.raises(RecipeError, match="not sound TOML"):
        read(tmp_path / "broken.toml")


@pytest.mark.parametrize("name", recipes.known())
def test_every_recipe_is_sound_in_every_preset(name: str) -> None:
    for preset in recipes.presets(name):
        recipe = read(name, preset)
        labels = {entry.label for entry in recipe.entries}
        if recipe.kind != COMPARISON:
            continue
        for label, of_cases in recipe.tree.get("paper", {}).items():
            assert label in labels or preset == "smoke", f"{label} has a figure of the paper but is not run"
            assert set(of_cases) <= set(read(name).cases)


@pytest.mark.parametrize("name", recipes.known())
def test_a_recipe_shown_in_full_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    recipe = read(name)
    shown = complete(recipe)
    assert "# patience is not set" in shown
    again = Recipe(recipe.name, tomllib.loads(shown))
    assert again.entries == recipe.entries
    for case in recipe.cases:
        before, after = recipe.config(case, 1), again.config(case, 1)
        assert (before.train, before.learn, before.tune, before.test, before.model) == (
            after.train, after.learn, after.tune, after.test, after.model,
        )  # fmt: skip
        assert before.data.choices.items() <= after.data.choices.items()


def test_the_papers_hyper_parameters() -> None:
    """Against the table in the paper."""
    cnn, resnet = read("table5-cifar10-cnn"), read("table1-cifar10-resnet18")
    digits, pacs = read("table2-digits5"), read("table2-pacs")
    told = [
        (
            *(c.train.rounds, c.train.lr, c.train.batch_size),
            *(c.learn.rounds, c.learn.cohort, c.learn.lr, c.learn.batch_size),
            c.test.batch_size,
        )
        for c in (r.config(r.cases[0], 0) for r in (resnet, cnn, digits, pacs))
    ]
    assert told == [
        (200, 0.01, 20, 200, 60, 0.1, 20, 20),
        (200, 0.1, 20, 400, 60, 0.1, 20, 20),
        (200, 0.01, 20, 200, 10, 0.5, 200, 200),
        (200, 0.05, 20, 500, None, 0.5, 200, 200),
    ]
    assert all(len(r.seeds) == 5 for r in (resnet, cnn, digits, pacs))


def test_merging_keeps_what_only_one_says() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "e": [5]}) == {
        "a": {"b": 1, "c": 4}, "d": 3, "e": [5],
    }  # fmt: skip


def test_flat_names_every_key_as_set_takes_it(path: Path) -> None:
    config = read(path).config("a", 0)
    flat = config.flat()
    assert flat["data.shift"] == "label"
    assert flat["train.rounds"] == 5
    for key in ("train.lr", "learn.lr", "test.batch_size", "tune.clients"):
        changed = read(path, changes=[f"{key}={3 if 'lr' not in key else 0.25}"])
        assert changed.config("a", 0).flat()[key] != flat[key]
    assert isinstance(config, Config)
