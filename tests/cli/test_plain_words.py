"""What commands say about mistakes of the first hour: in their own words, early, and with the remedy."""

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import ttpfl
from ttpfl.cli import app
from ttpfl.cli.messages import show_warnings, speaking_for
from ttpfl.cli.words import as_options
from ttpfl.models import Signature, build, save_model

SIGNATURE = Signature(("ant", "bee"), (20, 20), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
HOW = {"name": "shallow_cnn", "num_classes": 2, "image_size": 20}


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), prog_name="ttpfl")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, its rates, and 3 pictures."""
    torch.manual_seed(0)
    model = build(**HOW)
    save_model(tmp_path / "m.safetensors", model, build=HOW, signature=vars(SIGNATURE))
    ttpfl.Rates.zeros(model).save(tmp_path / "r.safetensors")
    pictures(tmp_path / "pictures", 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pictures(folder: Path, count: int, side: int = 20) -> None:
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(256, size=(count, side, side, 3)).astype(np.uint8)
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(folder / f"{number:03}.png")


@pytest.mark.parametrize(
    ("method", "option"),
    [("atp-online", "--rates"), ("atp-batch", "--rates"), ("atp-stats", "--stats-rates")],
)
def test_methods_that_lack_their_rates_name_the_option(place: Path, method: str, option: str) -> None:
    result = invoke("compare", "m.safetensors", "--methods", f"none,{method}", "--out", "out")
    assert result.exit_code == 2
    assert f"{method} needs learned rates: give {option}, the result of `ttpfl learn" in result.stderr
    assert not (place / "out").exists()


def test_options_are_spelled_as_the_command_has_them(place: Path) -> None:
    pictures(place / "own/source/north/ant", 2)
    pictures(place / "own/source/north/bee", 2, side=30)
    result = invoke("train", "folder", "--data-dir", "own", "--out", "out")
    assert result.exit_code == 1
    assert result.stderr.strip().endswith("pass --option image_size=48 to resize them")
    recipe = 'title = "own"\nquestion = "?"\nseeds = [0]\nmethods = ["none"]\n[data]\nname = "folder"\n'
    (place / "own.toml").write_text(recipe)
    result = invoke("run", "own.toml", "--data-dir", "own", "--out", "out")
    assert "pass --set data.options.image_size=48 to resize them" in result.stderr


def test_a_folder_for_a_picture_is_missing(place: Path) -> None:
    result = invoke("data", "show", "digits", "--out", "no/such/clients.png")
    assert result.exit_code == 2
    assert "the folder no/such does not exist: create it first" in result.stderr


@pytest.mark.parametrize("answer", ["y", "n"])
def test_in_a_terminal_it_asks(place: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttpfl.cli import options

    monkeypatch.setattr(options, "_at_a_terminal", lambda: True)
    monkeypatch.setattr("ttpfl.data.show.show", lambda federated, out: out.write_bytes(b""))
    result = CliRunner().invoke(
        app, ["data", "show", "digits", "--shift", "none", "--out", "no/such/a.png"], input=f"{answer}\n"
    )
    assert "the folder no/such does not exist. Create it? [y/N]" in result.output
    assert (result.exit_code, (place / "no/such/a.png").exists()) == (
        (0, True) if answer == "y" else (2, False)
    )


def test_a_missing_data_directory_is_named_as_missing(place: Path) -> None:
    for name in ("folder", "arrays", "cifar10", "pacs"):
        result = invoke("train", name, "--data-dir", "nowhere", "--out", "out")
        assert result.exit_code == 1
        assert "error: the data directory nowhere does not exist. Put " in result.stderr
        assert "(--data-dir or TTPFL_DATA names another directory)" in result.stderr
    (place / "empty").mkdir()
    assert (
        "there are no images in empty/source"
        in invoke("train", "folder", "--data-dir", "empty", "--out", "o").stderr
    )


def test_rates_and_models_are_told_apart(place: Path) -> None:
    for words in (
        ["personalize", "pictures", "--model"],
        ["learn", "--out", "out"],
        ["compare", "--out", "out"],
    ):
        result = invoke(*words, "r.safetensors")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "r.safetensors is a rates file (--rates), not a model" in result.stderr
    result = invoke("personalize", "pictures", "--model", "m.safetensors", "--rates", "m.safetensors")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "m.safetensors is a model file, not a rates file" in result.stderr


def test_nothing_is_printed_before_the_first_prediction(place: Path) -> None:
    result = invoke("personalize", "no pictures", "--model", "m.safetensors")
    assert (result.exit_code, result.stdout) == (1, "")
    result = invoke(
        "personalize", "pictures", "--model", "m.safetensors", "--mean", "0,0,0", "--std", "1,1,1"
    )
    assert result.stdout.splitlines()[0] == "path,class,confidence"
    assert len(result.stdout.splitlines()) == 4


def test_resizing_is_said_once(place: Path) -> None:
    assert invoke("personalize", "pictures", "--model", "m.safetensors").stderr == ""
    pictures(place / "large", 3, side=33)
    result = invoke("personalize", "pictures", "large", "--model", "m.safetensors")
    assert result.exit_code == 0
    assert result.stderr == "images are resized to 20x20 for the model; large/000.png is 33x33\n"


@pytest.mark.parametrize("count", [99, 100])
def test_predictions_that_collapse_into_one_class(place: Path, count: int) -> None:
    pictures(place / "many", count)
    model = build(**HOW)
    with torch.no_grad():
        model.linear5.bias.copy_(torch.tensor([0.0, 1e4]))
    save_model(place / "one.safetensors", model, build=HOW, signature=vars(SIGNATURE))
    result = invoke("personalize", "many", "--model", "one.safetensors")
    said = f"warning: all {count} samples were given the same class, 'bee'"
    assert result.exit_code == 0
    assert (said in result.stderr) == (count >= 100)


def test_a_model_that_was_at_chance_is_recognised(place: Path) -> None:
    checked = {"samples": 1000, "validation_accuracy": 0.099, "chance": 0.11, "at_chance": True}
    save_model(place / "bad.safetensors", build(**HOW), build=HOW, signature=vars(SIGNATURE), checked=checked)
    result = invoke("personalize", "pictures", "--model", "bad.safetensors")
    assert result.exit_code == 0
    assert "warning: bad.safetensors is no better than chance: accuracy 9.9% on" in result.stderr


@pytest.mark.parametrize(
    "checked",
    [
        {"at_chance": True},
        {"at_chance": True, "validation_accuracy": "much", "chance": None},
        {"at_chance": True, "validation_accuracy": 10**400, "chance": 0.1},
        {"at_chance": "yes", "validation_accuracy": 0.1, "chance": 0.1},
    ],
)
def test_a_card_that_says_nothing_clear_about_chance(place: Path, checked: dict[str, object]) -> None:
    save_model(place / "odd.safetensors", build(**HOW), build=HOW, signature=vars(SIGNATURE), checked=checked)
    result = invoke("personalize", "pictures", "--model", "odd.safetensors")
    assert result.exit_code == 0, result.stderr
    assert "chance" not in result.stderr


SMALL = ["digits", "--shift", "none", "--set", "source_clients=4", "--set", "target_clients=2"]


def test_divergence_ends_with_an_error_and_a_model(place: Path) -> None:
    words = ["train", *SMALL, "--rounds", "2", "--workers", "0", "--out", "out"]
    words += ["--lr", "0.1", "--weight-decay", "21"]  # weights grow tenfold in 24 steps
    result = invoke(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: training diverged: the loss rose from " in result.stderr
    assert "out/model.safetensors is written; with --allow-divergence this is only a warning" in result.stderr
    assert (place / "out/model.safetensors").exists()
    with pytest.warns(ttpfl.DivergenceWarning):
        result = invoke(*words, "--resume", "--allow-divergence")
    assert result.exit_code == 0
    assert "out/model.safetensors written after 2 rounds" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learn", "m.safetensors", "--lr", "-1"], "--lr must be a positive number, got -1.0"),
        (["learn", "m.safetensors", "--mode", "onlin"], "--mode must be 'batch' or 'online', got 'onlin'"),
        (["compare", "m.safetensors", "--order", "random"], "unknown order 'random'"),
    ],
)
def test_settings_have_the_names_of_options(words: list[str], said: str, place: Path) -> None:
    """Also checked before clients are built, which takes long (and this model has none)."""
    result = invoke(*words, "--out", "out")
    assert result.exit_code != 0
    assert f"error: {said}" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("diverged; lower lr (it is 30)", "diverged; lower --lr (it is 30)"),
        ("train longer, or with another lr (it is 5)", "train longer, or with another --lr (it is 5)"),
        ("cohort is 50, but there are only 4 clients", "--cohort is 50, but there are only 4 clients"),
        ("average='krum' with trim=0.1 needs 4", "--average krum with --trim 0.1 needs 4"),
        ("resume it (resume=True) or", "resume it (--resume) or"),
        ("mu was 0.1, now it is 1.0", "--mu was 0.1, now it is 1.0"),
        ("seed must be an integer, got", "seed must be an integer, got"),
        ("the cohort is drawn", "the cohort is drawn"),
    ],
)
def test_sentences_about_settings(text: str, said: str) -> None:
    assert as_options(text, "learn") == said


def test_warnings_name_options_as_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("ttpfl")
    monkeypatch.setattr(log, "handlers", list(log.handlers))  # no other test gets the one that is added
    with warnings.catch_warnings(), speaking_for(lambda: "learn"):
        show_warnings()
        warnings.warn("lower lr (it is 3)", ttpfl.RatesWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: lower --lr (it is 3)\n"
