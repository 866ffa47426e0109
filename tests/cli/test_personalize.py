"""`ttpfl personalize`, compared with the same arithmetic by hand."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import ttpfl
from ttpfl.cli import app
from ttpfl.core.gain import FIGURES, GAIN, RIGHT, Coefficients
from ttpfl.core.guard import Estimator, Guard, Limits
from ttpfl.data.pictures import Unreadable
from ttpfl.folder_stream import Prediction, predict_pictures
from ttpfl.models import Signature, save_model

CLASSES = ("ant", "bee", "cat, wild")
SIGNATURE = Signature(CLASSES, (20, 20), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
HOW = {"name": "shallow_cnn", "num_classes": 3, "image_size": 20}
PIXELS = np.random.default_rng(0).integers(256, size=(11, 20, 20, 3)).astype(np.uint8)
NAMES = [f"{'abc'[i // 4]}/{i:02}.png" for i in range(11)]  # in the order of their names
BATCH = ["--batch-size", "4"]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return ttpfl.models.build(**HOW).eval()


@pytest.fixture(scope="module")
def rates(model: nn.Module) -> ttpfl.Rates:
    zeros = ttpfl.Rates.zeros(model)
    return zeros.with_values(torch.linspace(-0.5, 0.5, len(zeros.names)))


@pytest.fixture
def place(tmp_path: Path, model: nn.Module, rates: ttpfl.Rates, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, rates and pictures."""
    save_model(tmp_path / "m.safetensors", model, build=HOW, signature=vars(SIGNATURE))
    rates.save(tmp_path / "r.safetensors")
    for name, pixels in zip(NAMES, PIXELS, strict=True):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "pictures" / "notes.txt").write_text("not a picture")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: object, input: str | bytes | None = None, model: str = "m.safetensors") -> Result:
    return CliRunner().invoke(app, ["personalize", "--model", model, *map(str, words)], input=input)


def answers(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, (result.stderr, result.exception)
    return list(csv.DictReader(io.StringIO(result.stdout)))


def by_hand(predictor: ttpfl.Personalizer | nn.Module) -> Tensor:
    """Probabilities of all pictures, four at a time."""
    mean, std = torch.tensor(SIGNATURE.mean), torch.tensor(SIGNATURE.std)
    scaled = (torch.tensor(PIXELS).double() / 255 - mean) / std
    batches = scaled.float().permute(0, 3, 1, 2).split(4)
    with torch.no_grad():
        return torch.cat([predictor(batch) for batch in batches]).softmax(1)


def check(found: list[dict[str, str]], expected: Tensor) -> None:
    assert [row["path"] for row in found] == [f"pictures/{name}" for name in NAMES]
    assert [row["class"] for row in found] == [CLASSES[number] for number in expected.argmax(1)]
    confidence = [float(row["confidence"]) for row in found]
    assert confidence == pytest.approx(expected.max(1).values.tolist(), abs=2e-5)


@pytest.mark.parametrize("mode", ["online", "batch"])
def test_it_adapts_as_the_personalizer_does(
    place: Path, model: nn.Module, rates: ttpfl.Rates, mode: str
) -> None:
    expected = by_hand(ttpfl.Personalizer(model, rates, mode=mode))  # type: ignore[arg-type]
    assert not torch.allclose(expected, by_hand(model), atol=1e-3)
    check(answers(run("pictures", "--rates", "r.safetensors", "--mode", mode, *BATCH)), expected)
    if mode == "online":
        check(answers(run("pictures", "--rates", "r.safetensors", *BATCH)), expected)


def test_rates_of_zero_are_announced(place: Path, model: nn.Module) -> None:
    ttpfl.Rates.zeros(model).save(place / "zeros.safetensors")
    found = run("pictures", "--rates", "zeros.safetensors", *BATCH)
    assert "all rates in zeros.safetensors are zero, so the plain model answers" in found.stderr
    assert "are zero" not in run("pictures", "--rates", "r.safetensors", *BATCH).stderr


def test_without_rates_nothing_adapts(place: Path, model: nn.Module) -> None:
    found = answers(run("pictures", "--probabilities", *BATCH))
    check(found, by_hand(model))
    assert list(found[0]) == ["path", "class", "confidence", *CLASSES]
    shown = torch.tensor([[float(row[name]) for name in CLASSES] for row in found])
    assert torch.allclose(shown, by_hand(model), atol=2e-5)
    refused = run("pictures", "--mode", "batch")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "nothing adapts without --rates" in refused.stderr


def test_a_pipe_a_folder_and_files_are_the_same(place: Path) -> None:
    paths = [f"pictures/{name}" for name in NAMES]
    words = ["--rates", "r.safetensors", *BATCH]
    whole = run("pictures", *words)
    assert run("-", *words, input="\n".join(paths)).stdout == whole.stdout
    assert run("-", *words, input="\r\n".join([*paths[:3], "", *paths[3:]])).stdout == whole.stdout
    assert run(*paths, *words).stdout == whole.stdout
    assert run("pictures/a", "-", "pictures/c", *words, input="\n".join(paths[4:8])).stdout == whole.stdout


def test_to_a_file_and_as_json(place: Path) -> None:
    words = ["pictures", "--rates", "r.safetensors", "--probabilities", *BATCH]
    plain = run(*words)
    quiet = run(*words, "--out", "predictions.csv")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert (place / "predictions.csv").read_text() == plain.stdout
    objects = [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]
    for row, one in zip(answers(plain), objects, strict=True):
        assert (one["path"], one["class"], one["confidence"]) == (
            row["path"], row["class"], float(row["confidence"])
        )  # fmt: skip
        assert one["probabilities"] == {name: float(row[name]) for name in CLASSES}


def test_unreadable_pictures_are_named_and_left_out(place: Path) -> None:
    words = ["pictures", "--rates", "r.safetensors", *BATCH]
    before = run(*words)
    (place / "pictures" / "a" / "01x.jpg").write_bytes(b"junk")
    after = run(*words)
    assert after.exit_code == 0
    assert after.stdout == before.stdout  # its place in the batch goes to the next one
    first, last = after.stderr.splitlines()
    assert first.startswith("warning: skipped pictures/a/01x.jpg, which cannot be read: ")
    assert last == "warning: 1 of 12 images could not be read"


def test_nothing_to_read_is_an_error(place: Path) -> None:
    result = run("pictures/a/00.jpg", "nowhere", "--out", "predictions.csv")
    assert result.exit_code == 1
    assert "skipped nowhere, which cannot be read" in result.stderr
    assert result.stderr.splitlines()[-1] == "error: none of 2 images could be read"
    assert not (place / "predictions.csv").exists()
    assert run("nowhere").stderr.splitlines()[-1] == "error: the image could not be read"
    (place / "empty").mkdir()
    assert run("empty").stderr == "error: there are no images in empty\n"
    assert run("-", input="").exit_code == 1


def test_any_name_of_a_file(place: Path) -> None:
    odd = b"pictures/\xff,\n.png"
    os.rename("pictures/a/00.png", odd)
    found = list(csv.reader(io.StringIO(os.fsdecode(run("pictures").stdout_bytes))))
    assert os.fsencode(found[1][0]) == odd
    os.rename(odd, b"pictures/\xff.png")
    piped = run("-", input=b"pictures/\xff.png\n")
    assert piped.stdout_bytes.splitlines()[1].startswith(b"pictures/\xff.png,")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_of_others(place: Path, model: nn.Module, suffix: str) -> None:
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    path = f"w{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    (place / "names.txt").write_text("\n".join(CLASSES))
    said = {
        "arch": "shallow_cnn",
        "classes": "names.txt",
        "image-size": "20",
        "mean": "0.4,0.5,0.6",
        "std": "0.2,0.25,0.3",
    }
    words = [word for name, value in said.items() for word in (f"--{name}", value)]
    assert run("pictures", *words, *BATCH, model=path).stdout == run("pictures", *BATCH).stdout
    options = " ".join(f"--{name}" for name in said)
    assert run("pictures", model=path).stderr == (
        f"error: {path} does not describe its model: add {options}\n"
    )
    assert run("pictures", *words[:-2], model=path).stderr.endswith(": add --std\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--classes", "ants"], "--classes ants: expected a number, comma-separated names"),
        (["--classes", "7"], "there are 7 classes, but the network returns logits of shape (1, 3)"),
        (["--classes", "a,b,a"], "the class 'a' occurs twice"),
        (["--image-size", "20*24"], "--image-size 20*24: expected a side, or height and width"),
        (["--mean", "1,2"], "mean must be three numbers, got (1.0, 2.0)"),
        (["--std", "1,0,1"], "three positive numbers"),
        (["--arch", "resnet17"], "unknown model 'resnet17'"),
        (["--arch", "resnet18"], "'conv1.weight' has shape (32, 3, 3, 3) in m.safetensors"),
        (["--image-size", "32x20"], "the network does not accept images of 32x20"),
        (
            ["--arch", "shallow_cnn", "--image-size", "20x32"],
            "images are 20x32, but the network shallow_cnn",
        ),
        (["--rates", "m.safetensors"], "m.safetensors is a model file, not a rates file"),
        (
            ["--rates", "r.safetensors", "--mode", "offline"],
            "--mode must be 'batch' or 'online', got 'offline'",
        ),
    ],
)
def test_errors(place: Path, words: list[str], message: str) -> None:
    result = run("pictures", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_does_not_decide_which_code_runs(place: Path, model: nn.Module) -> None:
    own = "ttpfl.models.shallow_cnn:shallow_cnn"
    save_model("own.safetensors", model, build={**HOW, "name": own}, signature=vars(SIGNATURE))
    refused = run("pictures", model="own.safetensors")
    assert refused.exit_code == 1
    assert f"if you trust it, pass the model, or --arch {own}" in refused.stderr
    trusted = run("pictures", "--arch", own, model="own.safetensors")
    assert trusted.stdout == run("pictures").stdout


def test_without_pillow(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    result = run("pictures")
    assert result.exit_code == 1
    assert "PIL is not installed" in result.stderr
    assert "install ttpfl with the extra `data`" in result.stderr


def test_nothing_is_kept_but_a_batch(place: Path) -> None:
    """Paths are taken as they are needed, so that an endless stream is answered, too."""
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "pictures/a/00.png" if taken % 5 else "nowhere.png"

    def uncertain(batch: Tensor) -> Tensor:
        assert batch.shape == (4, 3, 16, 24)
        return torch.zeros(4, 3)

    wide = replace(SIGNATURE, image_size=(16, 24))
    found = predict_pictures(uncertain, endless(), wide, batch_size=4)
    predicted = unreadable = 0
    for _ in range(500):
        one = next(found)
        if isinstance(one, Unreadable):
            unreadable += 1
        else:
            predicted += 1
            assert one == Prediction("pictures/a/00.png", "ant", 1 / 3, (1 / 3, 1 / 3, 1 / 3))
        assert taken <= predicted + unreadable + 4


def test_a_fifo_is_left_out_and_not_waited_for(place: Path) -> None:
    os.mkfifo(place / "pipe.png")
    command = [sys.executable, "-m", "ttpfl", "personalize", "--model", "m.safetensors"]
    done = subprocess.run(
        [*command, "pipe.png", "pictures"], cwd=place, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "skipped pipe.png, which cannot be read: " in done.stderr
    assert "FIFOs and devices are not read" in done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(NAMES)


def guarded(rates: ttpfl.Rates, gain: float) -> ttpfl.Rates:
    """Rates whose guard believes that every prediction gains so much, and that nothing is unusual."""
    limits = Limits(dict.fromkeys(rates.names, 1000000000.0), {}, 1e9, 2)
    unit, anywhere = torch.eye(GAIN, dtype=torch.float64)[0], torch.zeros(FIGURES, FIGURES)
    coefficients = Coefficients(gain * unit, 0.5 * unit[:RIGHT], 0 * unit[:FIGURES], anywhere.double())
    estimator = Estimator(tuple(coefficients.numbers.tolist()), 0.05, 0.1, 0.1, {})
    return replace(rates, guard=Guard(limits, estimator))


def test_guard_answers_with_the_plain_model(place: Path, model: nn.Module, rates: ttpfl.Rates) -> None:
    values = torch.zeros_like(rates.values)
    values[-1] = -1000.0  # of the last bias, so that predictions change
    rates = rates.with_values(values)
    guarded(rates, gain=-1.0).save("guarded.safetensors")
    words = ("pictures", "--rates", "guarded.safetensors", *BATCH)
    result, personal = run(*words), ttpfl.Personalizer(model, guarded(rates, gain=-1.0), mode="online")
    check(answers(result), by_hand(personal))
    used = [row["model"] for row in answers(result)]
    assert set(used) == {"plain"}
    assert "adaptation was stopped once" in result.stderr
    assert f"batches answered by the plain model: {-(-len(used) // 4)}" in result.stderr
    assert "estimated accuracy without labels: plain model 50%" in result.stderr
    lines = run(*words, "--json").stdout.splitlines()
    assert [json.loads(line)["model"] for line in lines] == used
    alarmed = run(*words, "--fail-on-alarm")
    assert alarmed.exit_code == 3
    assert alarmed.stdout == result.stdout
    unguarded = run(*words, "--no-guard", "--fail-on-alarm")
    check(answers(unguarded), by_hand(ttpfl.Personalizer(model, rates, mode="online")))


def test_guard_answers_with_the_adapted_model(place: Path, model: nn.Module, rates: ttpfl.Rates) -> None:
    guarded(rates, gain=1.0).save("guarded.safetensors")
    result = run("pictures", "--rates", "guarded.safetensors", *BATCH, "--fail-on-alarm")
    check(answers(result), by_hand(ttpfl.Personalizer(model, rates, mode="online")))
    assert {row["model"] for row in answers(result)} == {"adapted"}
