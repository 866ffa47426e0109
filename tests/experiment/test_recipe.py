"""Recipes: what they may say, and what is refused."""

import json
import re
import tomllib
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from ttpfl.data.population_config import PopulationConfig
from ttpfl.errors import RecipeError, TtpflError
from ttpfl.experiment import recipe as recipes
from ttpfl.experiment.complete import complete
from ttpfl.experiment.config import Config, Learn, merged
from ttpfl.experiment.inputs import (
    method_inputs,
    model_inputs,
    population_inputs,
    rates_inputs,
    tuning_inputs,
)
from ttpfl.experiment.recipe import Recipe, read
from ttpfl.experiment.store import key as stage_key
from ttpfl.methods import make

NOT_OF_THE_PAPER = (
    "changing-digits",
    "demo",
    "ecg-patients",
    "har-persons",
    "heart-hospitals",
    "plus-digits",
    "plus-swap-digits",
    "spoken-digits",
)
THREE_SEEDS = ("har-persons", "heart-hospitals", "plus-digits", "plus-swap-digits")
"""They take at most an hour."""
BESIDE_THE_PAPERS_ATP = ("plus-cifar10-cnn", "plus-digits", "plus-swap-cnn", "plus-swap-digits")
"""Recipes that compare other ways to learn rates with the paper's, in every preset."""
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


def test_the_default_preset_may_have_settings_that_the_others_do_not_take_over(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(SMALL + '[presets.paper]\nlearn = { optimizer = "sgd", lr = 0.5 }\n')
    assert recipes.presets(tmp_path / "own.toml") == ["paper", "cpu"]
    paper, cpu = (read(tmp_path / "own.toml", preset).config("a", 0) for preset in (None, "cpu"))
    assert (paper.train.rounds, paper.learn.optimizer, paper.learn.lr) == (5, "sgd", 0.5)
    assert (cpu.train.rounds, cpu.learn.optimizer, cpu.learn.lr) == (2, "trust-region", None)


def test_an_entry_may_learn_its_rates_with_another_optimizer(tmp_path: Path) -> None:
    """The settings of the first optimizer do not apply to it; those of both do."""
    entry = '[[entries]]\nlabel = "plus"\nmethod = "atp-batch"\nrates.learn.optimizer = "trust-region"\n'
    learn = '[presets.paper.learn]\noptimizer = "sgd"\nlr = 0.5\ncohort = 3\nbatch_size = 7\n'
    (tmp_path / "own.toml").write_text(SMALL + entry + learn)
    recipe = read(tmp_path / "own.toml")
    (plus,) = [one for one in recipe.entries if one.label == "plus"]
    found = recipe.rates_config("a", 0, plus, "all").learn
    assert (found.optimizer, found.lr, found.cohort, found.batch_size) == ("trust-region", None, None, 7)
    assert recipe.config("a", 0).learn.lr == 0.5


def test_changes_override_everything_but_cases(path: Path) -> None:
    changes = ["train.rounds=11", "seeds=[4]", "data.shift=hybrid", "cases.b.train.lr=0.5", 'only=["a", "b"]']
    changed = read(path, "cpu", changes)
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
        ("train.round=3", "unknown key 'round' in train; did you mean 'rounds'?"),
        ("trian.rounds=3", "unknown key 'trian'; did you mean 'train'?"),
        ("train.rounds=many", "train.rounds must be an integer, got 'many'"),
        ("train.rounds=true", "train.rounds must be an integer, got True"),
        ("data.shifts=label", "unknown key 'shifts' in data; did you mean 'shift'?"),
        ("train.seed=1", "unknown key 'seed' in train"),
        ("seeds=[-1]", "seeds must be a list of distinct non-negative integers, got [-1]"),
        ('only=["c"]', "unknown case 'c'"),
        ("cases.aa.train.lr=0.5", "unknown case 'aa'; did you mean 'a'?"),
        ("paper.none.aa=[60.0]", "unknown case 'aa' in paper.none; did you mean 'a'?"),
        ('entries=[{label="", method="em"}]', "entries[0] has no label"),
        ("cases.a.learning.lr=1.0", "unknown key 'learning' in cases.a; did you mean 'learn'?"),
        ("cases.a.learn.rate=1.0", "unknown key 'rate' in learn"),
        ('methods=["none", "none"]', "'none' is compared twice"),
        ("rounds", "--set rounds: must have the form key=value"),
        ('methods=["none", "tentt"]', "'tentt': unknown method 'tentt'; did you mean 'tent'?"),
        (
            'entries=[{label="e", method="em", config={iteration=3}}]',
            "'e': unknown hyper-parameter 'iteration' of em; did you mean 'iterations'",
        ),
        (
            'entries=[{label="f", method="fixed-rates", config={mode="x"}}]',
            "'f': mode must be 'batch' or 'online', got 'x'",
        ),
        ("train=3", "train must be a table of keys and values, got 3"),
        ("methods=none", "methods must be a list, got 'none'"),
        ("methods=[3]", "methods[0] must be a string, got 3"),
        ("seeds=[]", "seeds must be a list of distinct non-negative integers, got []"),
        ("seeds=[1, 1]", "seeds must be a list of distinct non-negative integers, got [1, 1]"),
        ("entries=[3]", "entries[0] must be a table of keys and values, got 3"),
        ("cases.a=3", "cases.a must be a table of keys and values, got 3"),
        ("cases.a.train=3", "train must be a table of keys and values, got 3"),
        ("paper.none=3", "paper.none must be a table of keys and values, got 3"),
        ("paper.none.a=3", "paper.none.a must be [mean] or [mean, sd], got 3"),
        ("presets.cpu.train.rounds=3", "unknown key 'presets'"),
        ("train.workers=3", "unknown key 'workers' in train"),
        ("learn.workers=3", "unknown key 'workers' in learn"),
        ("test.order=mixd", "'label-sorted' or 'mixed', got 'mixd'; did you mean 'mixed'?"),
        ("test.batch_size=0", "test.batch_size must be a positive integer, got 0"),
        ("tune.clients=-3", "tune.clients must be a non-negative integer, got -3"),
        ('entries=[{label="t", method="toy"}]', "'t': unknown method 'toy'"),
        ('entries=[{label="e", method="em", config={iterations="x"}}]', "'e': "),
        ('entries=[{label="e", method="em", rates={trian={}}}]', "unknown key 'trian' in rates of 'e'"),
        (
            'entries=[{label="f", method="fixed-rates", config={modules="conv9.*"}}]',
            "'f': shallow_cnn has no module 'conv9.*'; its layers are conv1, bn1,",
        ),
        (
            "model.name=none.such:net",
            "the network 'none.such:net' cannot be imported: No module named 'none'",
        ),
        ("train.lr=inf", "train.lr must be a finite number, got inf"),
        ("cases.a.learn.lr=nan", "cases.a.learn.lr must be a finite number, got nan"),
        ("paper.none.a=[-inf]", "paper.none.a[0] must be a finite number, got -inf"),
        (
            'entries=[{label="b", method="bn-adapt", config={prior=inf}}]',
            "entries[0].config.prior must be a finite number, got inf",
        ),
        ("cases.a.data.shift=domain", "held_out must be set to one of mnist, uci, rendered, blended"),
    ],
)
def test_mistakes_are_named_with_what_was_meant(path: Path, change: str, message: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        read(path, changes=[change])


@pytest.mark.parametrize(
    ("change", "message", "place"),
    [
        ("learn.lr=-1", "lr must be a positive number, got -1.0", "in learn"),
        ("train.algorithm=foo", "unknown algorithm 'foo'. Available: fedavg", "in train"),
        ("model.name=resnet19", "unknown network 'resnet19'; did you mean 'resnet18'?", "in model"),
        ("data.name=digit", "unknown data set 'digit'; did you mean 'digits'?", "in data"),
        ("data.options.image_size=3", "unknown option 'image_size' of digits", "in options"),
        ('data={shift="domain", held_out="xx"}', "unknown domain 'xx'", "in data"),
        ("data.options.seed=abc", "seed must be a non-negative integer, got 'abc'", "in options"),
        (
            "data.options.seed=2024-05-01",
            "seed must be a non-negative integer, got datetime.date(2024, 5, 1)",
            "in options",
        ),
        ("data.options.seed=true", "seed must be a non-negative integer, got True", "in options"),
        ("data.options.seed=-1", "seed must be a non-negative integer, got -1", "in options"),
        ("data.options.augmentation=0", "unknown augmentation 0. Available: domainbed, flips", "in options"),
        (
            'data={name="pacs", options.image_size=-3}',
            "image_size must be a positive integer, or height and width, got -3",
            "in options",
        ),
        (
            'data={name="pacs", options.image_size=true}',
            "image_size must be a positive integer, or height and width, got True",
            "in options",
        ),
        (
            'data={name="folder", options.skip_unreadable=1}',
            "skip_unreadable must be true or false, got 1",
            "in options",
        ),
        (
            'data={name="arrays", options.classes=["a", 1]}',
            "classes must be a list of names, in the order of their labels, got ['a', 1]",
            "in options",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_before_anything_runs(
    path: Path, change: str, message: str, place: str
) -> None:
    with pytest.raises(TtpflError, match=re.escape(message)) as caught:
        read(path, changes=[change, 'only=["b"]'])
    assert caught.value.__notes__[0] == place


@pytest.mark.parametrize(
    ("name", "change", "instead"),
    [
        ("table6-later-rounds", "train.rounds=3", 'cases."+0".train.rounds'),
        ("table1-cifar10-resnet18", "data.shift=none", "cases.feature.data.shift"),
        ("figure5-batch-size", 'test={batch_size=3, order="mixed"}', 'cases."batch=5".test.batch_size'),
    ],
)
def test_a_change_that_every_case_overrides_is_refused(name: str, change: str, instead: str) -> None:
    with pytest.raises(
        RecipeError, match=re.escape(f"changes nothing: every case overrides it; use --set {instead}")
    ):
        read(name, "smoke", [change])
    changed = read(name, "smoke", [f"{instead}={'label' if 'shift' in instead else 7}"])
    assert set(changed.changes) == {instead}
    assert changed.config(changed.cases[0], 0).flat()[instead.split(".", 2)[2]] in (7, "label")


def test_a_change_of_a_case_that_is_not_run_is_refused(path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"cases\.b\.train\.lr changes nothing: only these cases are run: a$"
    ):
        read(path, "cpu", ["cases.b.train.lr=0.5"])


@pytest.mark.parametrize("change", ["learn.rounds=1", "learn={lr=0.5}", "cases.label.learn.lr=0.5"])
@pytest.mark.parametrize("name", ["figure3-modules", "figure3-modules-cnn"])
def test_a_change_of_rate_learning_is_refused_where_nobody_needs_rates(name: str, change: str) -> None:
    assert "learn" not in tomllib.loads(recipes.find_file(name).read_text())
    with pytest.raises(RecipeError, match="changes nothing: no compared method needs learned rates"):
        read(name, changes=[change])
    with_rates = read(name, changes=[change, 'methods=["none", "atp-batch"]'])
    assert with_rates.config("label", 0).learn != read(name).config("label", 0).learn


def test_a_change_that_comes_twice_is_refused(path: Path) -> None:
    with pytest.raises(RecipeError, match=r"--set train\.lr is both 2 and 3: remove one"):
        read(path, changes=["train.lr=2", "train={lr=3}"])


def test_the_toy_example_takes_only_what_decides_about_it() -> None:
    assert read("figure9-toy", changes=["seeds=[3]"]).seeds == [3]
    for change in ("train.rounds=3", 'methods=["none"]'):
        with pytest.raises(RecipeError, match="in a recipe of kind toy"):
            read("figure9-toy", changes=[change])


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ("presets = 3", "presets must be a table of keys and values, got 3"),
        ("presets.cpu = 3", "presets.cpu must be a table of keys and values, got 3"),
        ("presets.paper = 3", "presets.paper must be a table of keys and values, got 3"),
        ("presets.paper.learn.rate = 2", "unknown key 'rate' in learn"),
        ("presets.tiny.train.round = 2", "unknown key 'round' in train"),
        ("presets.tiny.presets.x.seeds = [1]", "unknown key 'presets'"),
    ],
)
def test_presets_that_nobody_chose_are_checked(tmp_path: Path, presets: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(f'methods = ["none"]\n{presets}\n[data]\nname = "digits"\n')
    with pytest.raises(RecipeError, match=re.escape(message)):
        read(tmp_path / "own.toml")


def test_other_changes_have_another_folder(path: Path) -> None:
    plain, changed = read(path, "cpu"), read(path, "cpu", ["train.lr=0.5", "seeds=[1]"])
    assert plain.folder == "small-cpu"
    assert re.fullmatch("small-cpu-[0-9a-f]{8}", changed.folder)
    assert changed.folder == read(path, "cpu", ["seeds=[1]", "train={lr=0.5}"]).folder
    assert changed.folder != read(path, "cpu", ["train.lr=0.5"]).folder


def test_unknown_recipes_and_presets(path: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"unknown preset 'cpus' of small; did you mean 'cpu'.* Available: paper, cpu"
    ):
        read(path, "cpus")
    with pytest.raises(RecipeError, match="unknown preset ''"):
        read(path, "")
    (tmp_path / "LOUD.TOML").write_text(SMALL)
    assert read(tmp_path / "LOUD.TOML").tree == read(path).tree
    with pytest.raises(RecipeError, match="demo has no cases to choose from"):
        read("demo", changes=['only=["label"]'])
    with pytest.raises(RecipeError, match="did you mean 'demo'"):
        read("dem")
    with pytest.raises(RecipeError, match="there is no recipe"):
        read(tmp_path / "missing.toml")
    for content in (b"title = ", b"\xff\xfe"):
        (tmp_path / "broken.toml").write_bytes(content)
        with pytest.raises(RecipeError, match="not valid TOML"):
            read(tmp_path / "broken.toml")


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_sound_in_every_preset(name: str) -> None:
    for preset in recipes.presets(name):
        recipe = read(name, preset)
        labels = {entry.label for entry in recipe.entries}
        if not recipe.compares:
            continue
        for label, of_cases in recipe.tree.get("paper", {}).items():
            assert label in labels or preset == "smoke", f"{label} has a figure of the paper but is not run"
            assert set(of_cases) <= set(read(name).cases)


def stage_keys(recipe: Recipe) -> dict[tuple[str, int], list[str]]:
    """Under which every stage is kept, for each case and seed."""
    found = {}
    for case, seed in product(recipe.cases, recipe.seeds):
        config, keys = recipe.config(case, seed), []
        keys.append(stage_key("population", population_inputs(config)))
        keys.append(stage_key("model", model_inputs(config)))
        for entry in recipe.entries:
            method = make(entry.method, **entry.config)
            needs = method.needs_rates
            rates = recipe.rates_config(case, seed, entry, needs) if needs else None
            keys += [stage_key("rates", rates_inputs(rates))] if rates else []
            keys.append(stage_key("tuning", tuning_inputs(config, method, rates)))
            keys.append(stage_key("comparison", method_inputs(config, method, rates)))
        found[case, seed] = keys
    return found


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_shown_in_full_is_the_same_recipe_with_the_same_stages(name: str) -> None:
    for preset in recipes.presets(name):
        recipe = read(name, preset)
        shown = complete(recipe)
        assert ("# patience is not set" in shown) == recipe.compares
        assert "workers" not in shown
        again = Recipe(recipe.name, tomllib.loads(shown))
        assert (again.title, again.kind, again.seeds) == (recipe.title, recipe.kind, recipe.seeds)
        assert again.entries == recipe.entries
        assert again.tree.get("paper") == recipe.tree.get("paper")
        if recipe.compares:
            assert stage_keys(again) == stage_keys(recipe)
        assert complete(again) == shown


def test_what_a_recipe_leaves_open_is_shown(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('methods = ["em"]\n[data]\nname = "cifar100"\nshift = "label"\n')
    shown = complete(read(tmp_path / "own.toml")).splitlines()
    for line in (
        'title = "own"', 'question = ""', 'kind = "comparison"', "seeds = [0]", 'shift = "label"',
        "# ratio = 51.0", "# validation = 0.2", "# partition is not set", '# augmentation = ""',
        "# em = { iterations = 2, source_prior = false, pseudo_counts = 0.0, temperature = 1.0 }",
    ):  # fmt: skip
        assert line in shown
    assert not any(line.endswith(" seed = 0") for line in shown)  # of clients, it follows from seeds
    assert "# image_size = 224" in complete(read("table2-pacs")).splitlines()
    assert "null" not in complete(read("table1-cifar10-resnet18"))  # which TOML does not have


def test_what_follows_from_other_settings_is_shown_but_not_set(path: Path) -> None:
    """Otherwise, a case that chooses another optimizer would contradict it."""
    recipe = read(path, changes=["cases.b.learn.lr=0.5"])
    shown = complete(recipe)
    assert {'# optimizer = "trust-region"', "# rounds = 25"} <= {*shown.splitlines()}
    again = Recipe(recipe.name, tomllib.loads(shown))
    assert again.config("a", 0).learn.searches
    assert again.config("b", 0).learn == recipe.config("b", 0).learn
    assert stage_keys(again) == stage_keys(recipe)


def test_of_ones_own_clients_only_what_can_be_chosen_is_shown(tmp_path: Path) -> None:
    text = 'title = "\\U0001F600 \\u007f"\nmethods = ["none"]\n'
    text += '[data]\nname = "arrays"\noptions.image_size = [20, 24]\n'
    (tmp_path / "own.toml").write_text(text)
    recipe = read(tmp_path / "own.toml")
    shown = complete(recipe)
    assert "# validation = 0.2" in shown
    assert "shift" not in shown
    (tmp_path / "again.toml").write_text(shown, "utf-8")
    again = read(tmp_path / "again.toml")
    assert again.title == "\U0001f600 \x7f"
    assert stage_keys(again) == stage_keys(recipe)


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


@pytest.mark.parametrize("name", recipes.names())
def test_rates_are_learned_as_in_the_paper_only_in_the_preset_of_this_name(name: str) -> None:
    """All others, and the demo, use the defaults: nothing about learning is tuned by hand."""
    for preset in recipes.presets(name):
        recipe = read(name, preset)
        for case in recipe.cases if recipe.compares and recipe.learns else ():
            learn = recipe.config(case, 0).learn
            as_in_the_paper = preset == "paper" and name not in NOT_OF_THE_PAPER
            if as_in_the_paper or (name in BESIDE_THE_PAPERS_ATP and preset != "smoke"):
                assert (learn.optimizer, learn.mode, learn.check) == ("sgd", "batch", False)
                continue
            chosen = {key for key, value in asdict(learn).items() if value != getattr(Learn(), key)}
            assert chosen <= {"eval_every", "batch_size", "cohort", "mode", "prior", "cross_fit", "guard"}
            assert learn.cohort is None or "cohort" in recipe.overrides(case)["learn"]


@pytest.mark.parametrize("name", recipes.names())
def test_seeds_are_five_as_in_the_paper_and_one_on_two_cores(name: str) -> None:
    of_paper = read(name).compares and name not in NOT_OF_THE_PAPER
    cheap = name in THREE_SEEDS
    assert len(read(name).seeds) == (5 if of_paper else 3 if cheap else 1)
    if of_paper:
        assert len(read(name, "cpu").seeds) == 1


def test_the_page_about_the_paper_has_the_numbers_of_the_presets() -> None:
    page = " ".join((Path(__file__).resolve().parents[2] / "docs" / "paper.md").read_text().split())

    def both(name: str) -> tuple[Config, Config]:
        cpu = read(name, "cpu")
        return cpu.config(cpu.cases[0], 0), read(name).config(cpu.cases[0], 0)

    cpu, paper = both("table2-pacs")
    uses = f"Training on PACS uses `train.lr = {cpu.train.lr}` (after two rounds the loss was 1.1"
    assert f"{uses}; with the paper's {paper.train.lr} " in page
    assert f"images of {cpu.data.options['image_size']} pixels" in page
    assert [read(name, "cpu").cases for name in ("table2-digits5", "table2-pacs")] == [["mnist_m"], ["photo"]]
    later = read("table6-later-rounds", "cpu")
    first, *rest = [later.config(case, 0).train.rounds for case in later.cases]
    ten, twenty, fifty, hundred = [rounds - first for rounds in rest]
    assert f"trains {first} rounds and then {ten}, {twenty}, {fifty} and {hundred} more" in page


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


def test_flat_is_complete(path: Path) -> None:
    """What results say about their settings: all that `ttpfl.data` knows about clients, said or not."""
    recipe = read(path, changes=["data.alpha=0.25"])
    flat = recipe.config("a", 0).flat()
    clients = asdict(
        PopulationConfig(shift="label", alpha=0.25, source_clients=36, target_clients=9)
    )  # of digits
    del clients["seed"]
    assert {key.removeprefix("data."): value for key, value in flat.items() if key.startswith("data.")} == {
        "name": "digits",
        "options": {"seed": 0, "augmentation": ""},
        **clients,
    }
    assert json.loads(json.dumps(flat)) == flat
    own = Recipe("own", {"methods": ["none"], "data": {"name": "folder"}}).config("", 0).flat()
    assert [key for key in own if key.startswith("data.")] == ["data.name", "data.options", "data.validation"]


def test_a_budget_is_not_for_methods_that_choose_their_modules(path: Path) -> None:
    recipe = read(path, changes=["learn.budget=2"])
    kinds = {"all": "forward", "params": "params", "stats": "stats"}
    found = {kind: recipe.rates_config("a", 0, recipe.entries[0], kind).learn for kind in kinds}
    assert {kind: learn.selection for kind, learn in found.items()} == kinds


def test_an_entry_can_only_use_a_guard_that_is_learned() -> None:
    assert read("changing-digits").learns
    with pytest.raises(RecipeError, match=r"'atp-online, guard' uses a guard, .* set learn.guard = true"):
        read("changing-digits", changes=["learn.guard=false"])
