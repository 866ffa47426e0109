"""Files that were changed after they were written: noticed, and computed again or refused."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from typer.testing import CliRunner

import ttpfl
from ttpfl.cli import app
from ttpfl.cli.foreign import model_in
from ttpfl.errors import LimitError, ModelError, ReportError
from ttpfl.experiment.store import Store
from ttpfl.models.files import load_model, read_card, save_model
from ttpfl.models.weights import load_backbone
from ttpfl.results.files import load
from ttpfl.util.checksum import sealed

ROOT = Path(__file__).resolve().parents[1]
BUILD = {"name": "shallow_cnn", "num_classes": 2, "image_size": 20}
SIGNATURE = {"classes": ["a", "b"], "image_size": [20, 20], "mean": [0.5] * 3, "std": [0.5] * 3}


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_model(path, ttpfl.models.build(**BUILD).eval(), build=BUILD, signature=SIGNATURE)
    return path


def rewritten(path: Path, card: Any, **tensors: Tensor) -> None:
    """As somebody would write it who knows the format."""
    weights = {**load_file(path), **tensors}
    said = sealed(card, weights) if isinstance(card, dict) else card
    save_file(weights, path, metadata={"ttpfl": json.dumps(said)})


def card_of(path: Path) -> dict[str, Any]:
    return {name: value for name, value in read_card(path).items() if name != "checksum"}


def test_one_bit_of_a_weight(model_file: Path) -> None:
    before = load_model(model_file)[0].state_dict()
    data = bytearray(model_file.read_bytes())
    data[-3] ^= 1
    model_file.write_bytes(data)
    with pytest.raises(ModelError, match="is damaged \\(its checksum does not match\\): get it again"):
        load_model(model_file)
    with pytest.raises(ModelError, match="is damaged"):
        load_model(model_file, ttpfl.models.build(**BUILD))
    data[-3] ^= 1
    model_file.write_bytes(data)
    assert all(
        torch.equal(before[name], value) for name, value in load_model(model_file)[0].state_dict().items()
    )


def test_model_files_of_earlier_versions_are_read_with_one_warning(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, weights = load_model(model_file)[0].state_dict(), load_file(model_file)
    old = {"library": "0.1.0", "build": BUILD, "signature": SIGNATURE}
    save_file(weights, model_file, metadata={"ttpfl": json.dumps(old)})
    for _ in range(3):
        assert torch.equal(load_model(model_file)[0].state_dict()["conv1.weight"], before["conv1.weight"])
    (record,) = caplog.records
    assert "written by an earlier version, without a checksum" in record.message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_wherever_they_are_read(
    model_file: Path, value: float
) -> None:
    bad = load_file(model_file)["linear5.bias"].clone()
    bad[1] = value
    rewritten(model_file, card_of(model_file), **{"linear5.bias": bad})
    network = ttpfl.models.build(**BUILD)
    for attempt in (
        lambda: load_model(model_file),
        lambda: load_model(model_file, network),
        lambda: load_backbone(network, model_file),
    ):
        with pytest.raises(ModelError, match=r"'linear5\.bias' in .* has values that are not finite"):
            attempt()
    found = CliRunner().invoke(app, ["personalize", "--model", str(model_file), str(model_file.parent)])
    assert found.exit_code == 1
    assert "not finite" in found.stderr


class Masked(nn.Module):
    """Has a buffer that is meant to be infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))


def test_a_mask_may_be_infinite(tmp_path: Path) -> None:
    save_model(tmp_path / "m.safetensors", Masked())
    found, _ = load_model(tmp_path / "m.safetensors", Masked())
    assert found.mask[1] == -torch.inf


def test_predictions_are_never_nan(tmp_path: Path, model_file: Path) -> None:
    """The weights are finite, but what comes of them is not."""
    from PIL import Image

    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    weights = load_file(model_file)
    huge = {"linear4.bias": torch.full_like(weights["linear4.bias"], 10)}
    huge["linear5.weight"] = torch.full_like(weights["linear5.weight"], 3e38)
    rewritten(model_file, card_of(model_file), **huge)
    out = tmp_path / "out.csv"
    words = ["personalize", "--model", str(model_file), str(tmp_path / "a.png"), "--out", str(out)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1
    assert "logits that are not finite" in found.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signature": 5}, "invalid signature, not a table: 5"),
        ({"signature": {**SIGNATURE, "classes": 5}}, "classes must be a list, got 5"),
        ({"signature": {**SIGNATURE, "classes": [1, 2]}}, "the class 1 is not a string"),
        ({"signature": {**SIGNATURE, "classes": ["a", {}]}}, "the class {} is not a string"),
        ({"signature": {**SIGNATURE, "classes": ["a"] * 200_000}}, "the class 'a' occurs twice"),
        ({"signature": {**SIGNATURE, "image_size": ["20", 20]}}, "image_size must be height and width"),
        ({"signature": {**SIGNATURE, "image_size": [2**40, 20]}}, "image_size must be height and width"),
        ({"signature": {**SIGNATURE, "std": [0.5, 0.5, "x"]}}, "std must be three positive numbers"),
        ({"signature": {**SIGNATURE, "mean": [0, 0, 10**400]}}, "mean must be three numbers"),
        ({"build": 5}, "describes its network as 5"),
        ({"build": {"num_classes": 2}}, "must name a network"),
        ({"build": {"name": 5}}, "must name a network"),
    ],
)
def test_cards_that_make_no_sense(model_file: Path, change: dict[str, Any], words: str) -> None:
    rewritten(model_file, {**card_of(model_file), **change})
    with pytest.raises(ModelError, match=words):
        model_in(model_file, None)


def test_a_card_that_is_no_table(model_file: Path) -> None:
    rewritten(model_file, [1, 2])
    with pytest.raises(ModelError, match=r"a card that is not a table: \[1, 2\]"):
        load_model(model_file)


def test_unknown_keys_of_a_card_are_left_alone(model_file: Path) -> None:
    card = card_of(model_file)
    rewritten(model_file, {**card, "colour": 1, "signature": {**SIGNATURE, "colour_space": "sRGB"}})
    assert model_in(model_file, None)[1].classes == ("a", "b")


def work(folder: Path) -> dict[str, Any]:
    (folder / "model.safetensors").write_bytes(b"weights")
    return {"accuracy": 0.607}


def stage(root: Path) -> tuple[dict[str, Any], list[str]]:
    store = Store(root)
    return store.get("model", {"seed": 0}, work, files=["model.safetensors"]), store.computed


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("done.json", b"0.607", b"0.707"), ("model.safetensors", b"weights", b"weightz")],
)
def test_a_changed_figure_or_file_of_a_stage_is_computed_again(
    tmp_path: Path, file: str, before: bytes, after: bytes
) -> None:
    assert stage(tmp_path) == ({"accuracy": 0.607}, ["model"])
    assert stage(tmp_path) == ({"accuracy": 0.607}, [])
    (path,) = tmp_path.glob(f"model/*/{file}")
    path.write_bytes(path.read_bytes().replace(before, after))
    assert stage(tmp_path) == ({"accuracy": 0.607}, ["model"])
    assert before in path.read_bytes()
    path.unlink()
    assert stage(tmp_path) == ({"accuracy": 0.607}, ["model"])


def test_stages_of_earlier_versions_are_taken_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (0, 1):
        folder = Store(tmp_path).folder("model", {"seed": seed})
        folder.mkdir(parents=True)
        (folder / "inputs.json").write_text(json.dumps({"seed": seed}))
        (folder / "done.json").write_text(json.dumps({"accuracy": 0.5 + seed}))
        (folder / "seconds.json").write_text('{"seconds": 12.5}')
        (folder / "made-with.json").write_text('{"versions": [{"ttpfl": "0.1.0"}]}')
    store = Store(tmp_path)
    found = [store.get("model", {"seed": seed}, work, files=["model.safetensors"]) for seed in (0, 1)]
    assert found == [{"accuracy": 0.5}, {"accuracy": 1.5}]
    assert store.computed == []
    assert store.seconds == {"model": 25.0}
    assert store.versions == {"model": [{"ttpfl": "0.1.0"}]}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{tmp_path} was written by an earlier version" in caplog.text


def test_what_looks_like_an_earlier_version_beside_files_of_this_one_is_damaged(tmp_path: Path) -> None:
    stage(tmp_path)
    (path,) = tmp_path.glob("model/*/done.json")
    path.write_text("{}")
    assert stage(tmp_path) == ({"accuracy": 0.607}, ["model"])


def test_a_wrong_limit_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).get("sum", {}, lambda _: {"is": 3})
    monkeypatch.setenv("TTPFL_MAX_TEXT_BYTES", "abc")
    again = Store(tmp_path)
    with pytest.raises(LimitError, match="TTPFL_MAX_TEXT_BYTES must be a positive integer, got 'abc'"):
        again.get("sum", {}, lambda _: {"is": "computed again"})
    assert again.computed == []
    monkeypatch.undo()
    assert again.get("sum", {}, lambda _: {"is": "computed again"}) == {"is": 3}


def test_a_card_under_a_damaged_key_is_missed(model_file: Path) -> None:
    data = model_file.read_bytes()
    model_file.write_bytes(data.replace(b'"ttpfl":', b'"tupfl":', 1))
    assert model_file.read_bytes() != data
    with pytest.raises(ModelError, match="its card is not under the key 'ttpfl', so it is damaged"):
        load_model(model_file, ttpfl.models.build(**BUILD))


def test_changed_results_are_refused(tmp_path: Path) -> None:
    text = (ROOT / "results/figure9-toy.json").read_text()
    path = tmp_path / "results.json"
    figure = json.loads(text)["runs"][0]["entries"][0]["accuracy"][0]
    for damaged in (
        text.replace(f"[{figure}]", f"[{figure - 0.01}]", 1),
        text.replace('"checksum"', '"chacksum"'),
        text.replace('"format": 2', '"format": 1'),
    ):
        assert damaged != text
        path.write_text(damaged)
        with pytest.raises(ReportError, match="is damaged \\(its checksum does not match\\)"):
            load(path)
        for command in (["report"], ["results", "table"]):
            assert CliRunner().invoke(app, [*command, str(tmp_path)]).exit_code == 1


def test_results_of_earlier_versions_are_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = json.loads((ROOT / "results/figure9-toy.json").read_text())
    del found["checksum"]
    (tmp_path / "results.json").write_text(json.dumps({**found, "format": 1}))
    assert load(tmp_path)["runs"] == found["runs"]
    assert "written by an earlier version" in caplog.text


def test_committed_results_carry_checksums(caplog: pytest.LogCaptureFixture) -> None:
    for path in (ROOT / "results").glob("*.json"):
        load(path)
    assert not caplog.records
