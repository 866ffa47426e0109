"""Files that earlier versions wrote (`write.py`) load, and mean what they meant."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import ttpfl
from ttpfl import methods
from ttpfl.cli import app
from ttpfl.federation import LearnSettings, epsilon_of_rates
from ttpfl.models import build, load_model

HERE = Path(__file__).parent
VERSIONS = {folder.name: folder for folder in sorted(HERE.glob("[0-9]*"))}
RECORDED = {name: json.loads((folder / "recorded.json").read_text()) for name, folder in VERSIONS.items()}
ARCH = "tiny_network:make"

RUNS: dict[str, list[object]] = {
    "train-average": ["--cohort", 2, "--patience", 3],
    "train-local": ["--buffers", "local", "--momentum", 0.9, "--algorithm", "fedprox"],
    "learn-batch": ["--lr", 0.5],
    "learn-online": ["--lr", 0.5, "--mode", "online", "--only", "params", "--cohort", 2, "--patience", 2],
    "learn-private": ["--privacy", "central", "--noise", 5, "--clip", 0.01],
    "learn-default": ["--prior", "--no-check"],
}
ROUNDS = 4
GRIDS = {  # that have grown since: a larger one is tuned over again, and may choose differently
    "0.1": {
        "em": {"iterations": (1, 2, 5, 10, 100)},
        "bbse": {"uniform": (0.001, 0.01, 0.1, 0.5, 0.9), "cutoff": (1e-6, 1e-3, 0.01, 0.03, 0.1)},
    }
}
FIGURES = ("accuracy", "worst_decile", "difference", "harmed", "loss", "ece", "entropy")


def kept(part: str) -> list[Any]:
    """Of each version, everything of one kind."""
    return [
        pytest.param(version, name, id=f"{version}-{name}")
        for version, recorded in RECORDED.items()
        for name in recorded[part]
    ]


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """The network of the files, where the command line finds it as well."""
    monkeypatch.syspath_prepend(HERE)
    return build(ARCH, num_classes=3, image_size=8)


@pytest.fixture(autouse=True)
def grids(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    version = request.getfixturevalue("version") if "version" in request.fixturenames else None
    for name, grid in GRIDS.get(version, {}).items():
        monkeypatch.setattr(methods.get(name), "grid", staticmethod(lambda grid=grid: grid))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, since populations are cached beside the data."""
    return shutil.copytree(HERE / "data", tmp_path_factory.mktemp("old") / "data")


@pytest.fixture
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of everything that a version wrote, to work on."""
    return shutil.copytree(VERSIONS[request.getfixturevalue("version")], tmp_path / "old")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], prog_name="ttpfl")


def answer(*words: object) -> Any:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


def stream() -> list[Tensor]:
    x = torch.from_numpy(np.load(HERE / "data" / "target" / "east.npz")["x"]).float() / 255
    return list(x[:, None].expand(-1, 3, -1, -1).split(8))


def assert_close(found: Tensor, recorded: Any) -> None:
    """Up to the rounding errors of another processor."""
    torch.testing.assert_close(found, torch.tensor(recorded, dtype=found.dtype), rtol=1e-4, atol=1e-5)


def assert_state(model: nn.Module, recorded: Mapping[str, Any]) -> None:
    state = model.state_dict()
    assert list(state) == list(recorded)
    for name, tensor in state.items():
        assert torch.equal(tensor, torch.tensor(recorded[name], dtype=tensor.dtype)), name


def test_there_are_files_of_the_first_version() -> None:
    assert "0.1" in VERSIONS


@pytest.mark.parametrize(("version", "name"), kept("rates"))
def test_rates(version: str, name: str, network: nn.Module) -> None:
    model = load_model(VERSIONS[version] / "models" / "trained.safetensors", network)[0]
    recorded = RECORDED[version]["rates"][name]
    rates = ttpfl.Rates.load(VERSIONS[version] / "rates" / f"{name}.safetensors", model=model)
    assert rates.values.tolist() == recorded["values"]
    assert {rate: list(members) for rate, members in rates.members.items()} == recorded["members"]
    for field in ("granularity", "only", "mode", "learned"):
        assert getattr(rates, field) == recorded[field]
    table = rates.table().splitlines()
    if version == "0.1":  # which did not know the cost
        assert table.pop().startswith("a batch costs about")
    assert table == recorded["table"].splitlines()
    epsilon = math.inf if recorded["epsilon"] is None else recorded["epsilon"]
    assert epsilon_of_rates(rates) == pytest.approx(epsilon)
    personal = ttpfl.Personalizer(model, rates, mode="online")
    assert_close([personal(batch) for batch in stream()][-1], recorded["logits"])


@pytest.mark.parametrize(("version", "name"), kept("rates"))
def test_rates_that_are_saved_again_are_the_same(version: str, name: str, tmp_path: Path) -> None:
    rates = ttpfl.Rates.load(VERSIONS[version] / "rates" / f"{name}.safetensors")
    rates.save(tmp_path / "again.safetensors")
    again = ttpfl.Rates.load(tmp_path / "again.safetensors")
    assert again.values.tolist() == rates.values.tolist()
    for field in ("modules", "granularity", "only", "mode", "fingerprint", "weights_hash", "learned"):
        assert getattr(again, field) == getattr(rates, field)
    assert again.current_account() == rates.current_account()


@pytest.mark.parametrize("version", VERSIONS)
def test_model(version: str, network: nn.Module) -> None:
    recorded = RECORDED[version]["models"]["trained"]
    model, card = load_model(VERSIONS[version] / "models" / "trained.safetensors", network)
    assert_state(model, recorded["state"])
    assert card == recorded["card"]
    with torch.no_grad():
        assert_close(model(stream()[-1]), recorded["logits"])


@pytest.mark.parametrize("version", VERSIONS)
def test_model_that_is_built_as_its_file_says(version: str) -> None:
    recorded = RECORDED[version]["models"]["linear"]
    path = VERSIONS[version] / "models" / "linear.safetensors"
    model, card = load_model(path, trusted=["torch.nn:Linear"])
    assert_state(model, recorded["state"])
    assert card["note"] == recorded["note"]


def resumed(name: str, model: Path, data: Path, out: Path, *more: object) -> Tensor:
    """All numbers that a run comes to."""
    words = ["--data-dir", data, "--out", out, "--rounds", ROUNDS, "--batch-size", 8, "--workers", 0]
    if name.startswith("train"):
        result = answer("train", "arrays", "--model", ARCH, *words, *RUNS[name], *more)["result"]
        state = load_model(result, build(ARCH, num_classes=3, image_size=8))[0].state_dict()
        return torch.cat([tensor.double().flatten() for tensor in state.values()])
    result = answer("learn", model, "--arch", ARCH, *words, *RUNS[name], *more)["result"]
    return ttpfl.Rates.load(result).values.double()


def flat(recorded: Any) -> Tensor:
    if isinstance(recorded, dict):
        return torch.cat([torch.tensor(one, dtype=torch.float64).flatten() for one in recorded.values()])
    return torch.tensor(recorded, dtype=torch.float64)


@pytest.mark.parametrize(("version", "name"), kept("runs"))
def test_an_interrupted_run_is_resumed(
    version: str, name: str, old: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To the bits of the uninterrupted run, where this machine computes the bits that were recorded.

    Noise follows from the bits of the sums, so that another machine draws other noise.
    """
    model, uninterrupted = old / "models" / "trained.safetensors", tmp_path / "uninterrupted"
    if name == "learn-private":  # its noise follows from a key that the run keeps
        uninterrupted.mkdir()
        shutil.copy(old / name / "noise.key", uninterrupted)
    rounds = len((old / name / "history.jsonl").read_text().splitlines())
    found = resumed(name, model, data, old / name, "--resume")
    assert not [record for record in caplog.records if "damaged" in record.message]
    expected = flat(RECORDED[version]["runs"][name])
    if torch.equal(resumed(name, model, data, uninterrupted), expected):
        assert torch.equal(found, expected)
    elif name == "learn-private":
        assert bool(found.isfinite().all())
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    # The rounds before the interruption are those of the old run: nothing was computed again.
    before = VERSIONS[version] / name / "history.jsonl"
    after = (old / name / "history.jsonl").read_text().splitlines()
    assert after[:rounds] == before.read_text().splitlines()
    assert len(after) == ROUNDS > rounds


@pytest.mark.parametrize(("version", "name"), kept("manifests"))
def test_a_manifest_still_describes_its_population(version: str, name: str, data: Path) -> None:
    place = ["--data-dir", data] if name == "arrays" else []
    found = answer("data", "check", VERSIONS[version] / "manifests" / f"{name}.json", *place)
    recorded = RECORDED[version]["manifests"][name]
    assert {key: found[key] for key in recorded} == {**recorded, "done": "verified"}


def assert_methods(found: Sequence[Mapping[str, Any]], recorded: Sequence[Mapping[str, Any]]) -> None:
    """The same figures; what they cost differs from run to run."""
    assert [line["method"] for line in found] == [line["method"] for line in recorded]
    for line, before in zip(found, recorded, strict=True):
        for figure in FIGURES:
            assert line[figure] == pytest.approx(before[figure], rel=1e-4), (before["method"], figure)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_comparison_takes_over_what_was_computed(version: str, old: Path, data: Path) -> None:
    recorded = RECORDED[version]["compare"]["methods"]
    found = answer(
        "compare", old / "models" / "trained.safetensors", "--arch", ARCH, "--data-dir", data,
        "--rates", old / "rates" / "batch.safetensors", "--methods", "none,em,bbse,atp-online",
        "--batch-size", 8, "--order", "mixed", "--tune", 2, "--workers", 0, "--out", old / "compare",
    )["methods"]  # fmt: skip
    assert_methods(found, recorded)
    # Times are never the same twice. The others are tuned first, which may end differently on another CPU.
    for line, before in zip(found, recorded, strict=True):
        if line["method"] in ("none", "atp-online"):
            assert line["time"] == pytest.approx(before["time"], rel=1e-9)


@pytest.mark.parametrize("version", VERSIONS)
def test_results_of_a_comparison_are_shown_or_refused(version: str) -> None:
    result = invoke("results", "table", VERSIONS[version] / "compare", "--json")
    if result.exit_code == 0:
        (table,) = json.loads(result.stdout)
        for line in RECORDED[version]["compare"]["methods"]:
            assert table["accuracy"][line["method"]][""] == [pytest.approx(line["accuracy"]), None]
    else:
        assert result.exit_code == 1
        assert "has no 'recipe'" in result.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_results_of_a_run(version: str, tmp_path: Path) -> None:
    (results,) = (VERSIONS[version] / "run").glob("*/results.json")
    (table,) = answer("results", "table", results)
    assert table["accuracy"] == RECORDED[version]["run"]["finished"]["accuracy"]
    page = Path(answer("report", results.parent, "--out", tmp_path / "page.html")["report"]).read_text()
    assert "A run of an earlier version" in page
    assert "atp-online" in page


def ran(old: Path, data: Path, *more: object) -> Any:
    words = ["--data-dir", data, "--workers", 0, "--out", old / "run"]
    return answer("run", HERE / "recipe.toml", *words, *more)


def stages(run: Path) -> set[str]:
    return {str(folder.relative_to(run)) for folder in run.glob("stages/*/*")}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_takes_over_the_stages(version: str, old: Path, data: Path) -> None:
    """Another version computes anew, beside them."""
    recorded, before = RECORDED[version], stages(old / "run")
    found = ran(old, data)
    assert_methods(found["methods"][""], recorded["run"]["finished"]["methods"][""])
    if recorded["ttpfl"] == ttpfl.__version__:
        assert stages(old / "run") == before
        times = [line["time"] for line in recorded["run"]["finished"]["methods"][""]]
        assert [line["time"] for line in found["methods"][""]] == pytest.approx(times, rel=1e-9)
    else:
        assert stages(old / "run") > before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_with_more_rounds_goes_on_with_those_that_are_there(
    version: str, old: Path, data: Path
) -> None:
    found = ran(old, data, "--set", f"train.rounds={ROUNDS}")
    assert_methods(found["methods"][""], RECORDED[version]["run"]["longer"]["methods"][""])
    if RECORDED[version]["ttpfl"] == ttpfl.__version__:
        (history,) = (old / "run").glob("stages/training/*/history.jsonl")
        (before,) = (VERSIONS[version] / "run").glob("stages/training/*/history.jsonl")
        assert history.read_text().startswith(before.read_text())
        assert len(history.read_text().splitlines()) == ROUNDS


@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower: pip install ttpfl[flower]")
@pytest.mark.parametrize("version", [name for name in VERSIONS if "federation" in RECORDED[name]])
def test_what_operators_of_a_federation_keep(version: str, old: Path) -> None:
    from ttpfl.flower.folder import Federation
    from ttpfl.flower.identity import fingerprint_of, read_identities
    from ttpfl.flower.site import Site

    home, recorded = old / "federation", RECORDED[version]["federation"]
    federation = Federation.read(home)
    assert (federation.name, federation.host, federation.port) == ("federation", "fl.example.org", 9999)
    assert federation.sites == ("north", "south")
    keys = read_identities(home)
    for name in federation.sites:
        assert keys[name].fingerprint == fingerprint_of((federation.site(name) / "key.pub").read_bytes())
        assert keys[name].node is None  # never registered
    assert Site.read(federation.site("south") / "site.toml").name == "south"  # as ttpfl flower init wrote it
    site = Site.read(federation.site("north") / "site.toml")
    assert (site.name, site.layout, site.classes, site.image_size) == (
        "north", "folder", ["cat", "dog"], [24, 32],
    )  # fmt: skip
    assert (site.validation, site.seed, site.threads) == (0.25, 3, 2)
    assert list(asdict(site.policy).values()) == [
        ["learn"],
        ["shallow_cnn", "package.module:function"],
        5_000_000,  # largest_model
        10,  # most_models, by default
        1000.0,  # largest_rate, by default
        3,  # local epochs
        500,  # rounds
        4,  # smallest_batch
        20,  # fewest_samples
        2.0,  # local_noise
        8.0,  # epsilon
        1e-6,  # delta
    ]
    assert site.budget.spent == pytest.approx(recorded["spent"], rel=1e-9)
    site.budget.spend(LearnSettings(privacy="local", noise=recorded["noise"]))
    assert site.budget.spent > recorded["spent"]  # and the next answer counts on top
