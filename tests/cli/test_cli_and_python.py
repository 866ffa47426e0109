"""The command line and Python give the same weights, rates and figures, to the bit; and say so in JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import ttpfl
from ttpfl.cli import app
from ttpfl.evaluation import Evaluator, compare, gather
from ttpfl.federation import LearnSettings, TrainSettings, epsilon_of_rates, learn, train
from ttpfl.federation.privacy.accountant import epsilon_of
from ttpfl.methods import SourceInfo, make
from ttpfl.models import build, load_model
from ttpfl.util.randomness import seeded

CLIENTS: dict[str, Any] = {"shift": "label", "source_clients": 3, "target_clients": 2, "samples": 40}
METHODS = ("none", "bbse", "tent", "atp-online")


def run(*words: object, progress: list[str] | None = None) -> Any:
    """The answer; what stderr says on the way is added to `progress`, without figures and times."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    if progress is not None:
        progress += [re.split(", | = ", line)[0] for line in result.stderr.splitlines()]
    return json.loads(result.stdout)  # and nothing else is there


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command line answers, step by step."""
    place, seen = tmp_path_factory.mktemp("runs"), list[str]()
    sets = [word for name in ("source_clients", "target_clients", "samples") for word in
            ("--set", f"{name}={CLIENTS[name]}")]  # fmt: skip
    trained = run(
        "train", "digits", "--shift", "label", *sets, "--seed", 5, "--out", place / "model",
        "--rounds", 2, "--cohort", 2, "--lr", 0.05, "--workers", 0, "--algorithm", "fedprox",
        progress=seen,
    )  # fmt: skip
    learned = run(
        "learn", trained["result"], "--out", place / "rates",
        "--rounds", 2, "--lr", 0.1, "--batch-size", 8, "--workers", 0, "--average", "median",
        progress=seen,
    )  # fmt: skip
    compared = run(
        "compare", trained["result"], "--rates", learned["result"], "--out", place / "comparison",
        "--methods", ",".join(METHODS), "--batch-size", 16, "--order", "mixed", "--workers", 0,
        progress=seen,
    )  # fmt: skip
    return {"train": trained, "learn": learned, "compare": compared, "progress": seen}


@pytest.fixture(scope="module")
def federated() -> ttpfl.data.Federated:
    return ttpfl.data.federate("digits", seed=5, **CLIENTS)


def test_plain_progress_beside_the_answers(said: dict[str, Any]) -> None:
    assert said["progress"] == [
        "stage 1 of 2: building clients",
        "stage 2 of 2: training the model",
        "  round 1 of 2",
        "  round 2 of 2",
        "sent per client over 2 rounds: 2TD",
        "stage 1 of 2: building clients",
        "stage 2 of 2: learning rates",
        "  round 1 of 2",
        "  round 2 of 2",
        "sent per client over 2 rounds: D + 2Td",
        "stage 1 of 3: building clients",
        "stage 2 of 3: preparing methods",
        "  method 1 of 4",
        "  method 4 of 4",
        "stage 3 of 3: comparing methods",
        "  evaluation 1 of 8",
        "  evaluation 8 of 8",
    ]


def test_train(said: dict[str, Any], federated: ttpfl.data.Federated) -> None:
    with seeded(5):
        model = build("shallow_cnn", num_classes=10, image_size=28)
    settings = TrainSettings(rounds=2, cohort=2, lr=0.05, workers=0, algorithm="fedprox", seed=5)
    expected = train(model, federated.population.source, settings)
    found, card = load_model(said["train"]["result"])
    state = expected.model.state_dict()
    assert found.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in found.state_dict().items())
    assert said["train"]["rounds"] == 2
    assert said["train"]["last_round"] == json.loads(json.dumps(expected.history[-1]))
    assert card["population"] == federated.manifest.digest
    assert tuple(card["signature"]["classes"]) == federated.population.info.classes


def test_learn(said: dict[str, Any], federated: ttpfl.data.Federated) -> None:
    model, _ = load_model(said["train"]["result"])
    settings = LearnSettings(rounds=2, lr=0.1, batch_size=8, workers=0, average="median")
    expected = learn(model, federated.population.source, settings)
    found = ttpfl.Rates.load(said["learn"]["result"], model=model)
    assert torch.equal(found.values, expected.rates.values)
    assert found.values.any()
    assert said["learn"]["last_round"] == json.loads(json.dumps(expected.history[-1]))


PRIVATE = (
    "--rounds",
    2,
    "--batch-size",
    8,
    "--workers",
    0,
    "--privacy",
    "central",
    "--noise",
    5,
    "--clip",
    1e-3,
)


def test_epsilon_counts_the_rates_that_a_run_begins_with(said: dict[str, Any], tmp_path: Path) -> None:
    model = said["train"]["result"]
    first = run("learn", model, *PRIVATE, "--out", tmp_path / "first")
    second = run("learn", model, *PRIVATE, "--out", tmp_path / "second", "--rates", first["result"])
    for count, found in ((2, first), (4, second)):
        assert found["last_round"]["epsilon"] == pytest.approx(epsilon_of(5.0, count, 1e-5), rel=1e-9)
        assert epsilon_of_rates(ttpfl.Rates.load(found["result"])) == found["last_round"]["epsilon"]


def test_no_privacy_bound_after_unprotected_rates(said: dict[str, Any], tmp_path: Path) -> None:
    words = ["learn", said["train"]["result"], *PRIVATE, "--rates", said["learn"]["result"]]
    found = run(*words, "--out", tmp_path / "json")["last_round"]
    assert (found["epsilon"], found["no_bound"]) == (None, "learned without privacy")
    told = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "words")])
    assert "no privacy bound, epsilon is infinite (learned without privacy)" in told.stdout


def test_compare(said: dict[str, Any], federated: ttpfl.data.Federated) -> None:
    model, _ = load_model(said["train"]["result"])
    rates = {"all": ttpfl.Rates.load(said["learn"]["result"], model=model)}
    evaluator = Evaluator(federated.population.target, federated.target_labels, 16, "mixed", seed=0)
    chosen = []
    for one in map(make, METHODS):
        summary = gather(one, model, federated.population.source, 16, workers=0)
        chosen.append((one, SourceInfo(summary, rates)))
    expected = compare(model, evaluator, chosen, workers=0)
    stored = json.loads(Path(said["compare"]["results"]).read_text())
    (ran,) = stored["runs"]
    assert without_cost(ran["entries"]) == without_cost(json.loads(json.dumps(expected.run["entries"])))
    assert ran["setting"] == json.loads(json.dumps(expected.setting))
    assert ran["population"]["digest"] == federated.manifest.digest
    modules = {module["name"]: module["rate"] for module in ran["entries"][-1]["rates"]["modules"]}
    assert modules == {name: float(rate) for name, rate in rates["all"].by_module().items()}
    assert [line["method"] for line in said["compare"]["methods"]] == list(METHODS)
    for line in said["compare"]["methods"]:
        mean = sum(expected.of(line["method"])) / 2
        assert line["accuracy"] == pytest.approx(100 * mean)


def test_a_comparison_has_a_report(said: dict[str, Any]) -> None:
    folder = Path(said["compare"]["results"]).parent
    report = Path(run("report", folder)["report"])
    assert report == folder / "report.html"
    shown = report.read_text()
    for section in ("Comparison", "Learned rates", "Data audit"):
        assert f"<h2>{section}</h2>" in shown
    (found,) = run("results", "table", folder)
    lines = {line["method"]: line["accuracy"] for line in said["compare"]["methods"]}
    assert {label: cases[""][0] for label, cases in found["accuracy"].items()} == pytest.approx(lines)


def test_compare_with_other_clients(said: dict[str, Any], tmp_path: Path) -> None:
    """Those of a manifest: the same where it is the model's own, others where it is not."""

    def compared(out: str, **choices: Any) -> dict[str, Any]:
        manifest = tmp_path / f"{out}.json"
        ttpfl.data.federate("digits", manifest=manifest, **{"seed": 5, **CLIENTS, **choices})
        words = ["compare", said["train"]["result"], "--population", str(manifest), "--methods", "none,tent"]
        words += ["--batch-size", "16", "--order", "mixed", "--workers", "0", "--out", str(tmp_path / out)]
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        assert ("note: the model was not trained for these clients" in result.stderr) == bool(choices)
        return {line["method"]: line["accuracy"] for line in json.loads(result.stdout)["methods"]}

    own = {line["method"]: line["accuracy"] for line in said["compare"]["methods"]}
    assert compared("same") == {method: own[method] for method in ("none", "tent")}
    assert compared("other", shift="none")["none"] != own["none"]


def without_cost(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Time is never the same twice. Rates are learned elsewhere."""
    others = ("time", "extra_bytes", "rates")
    return [{name: value for name, value in entry.items() if name not in others} for entry in entries]
