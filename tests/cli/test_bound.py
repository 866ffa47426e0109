"""`ttpfl bound`, as a person or a program would use it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ttpfl
from tests.helpers.reference import Reference
from ttpfl.cli import app
from ttpfl.core.label_prior import SMOOTHING
from ttpfl.models import build, save_model

SPREAD = ["--beta", 1, "--sigma", 1, "--zeta", 0.5, "--distance", 1]
BALL = ["--modules-d", 3, "--direction-h", 1]
LEARNING = [*SPREAD, "--eta", 0.01, "--tau", 2, "--rounds-t", 200]


def run(*words: object, code: int = 0) -> str:
    """What the command says: on stdout if it succeeds, on stderr if it does not."""
    result = CliRunner().invoke(app, ["bound", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


def told(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json"))
    return found


def row(text: str, title: str) -> str:
    (line,) = (line for line in text.splitlines() if line.strip().startswith(title))
    return " ".join(line.split()).removeprefix(title).strip()


def test_numbers_alone_do_not_wait_for_torch() -> None:
    program = "import sys; from ttpfl.cli import app; app(sys.argv[1:], standalone_mode=False); "
    program += "print('torch' in sys.modules, 'numpy' in sys.modules)"
    words = ["bound", "--clients-n", 240, "--modules-d", 102, "--direction-h", 1, *LEARNING]
    path = {"PYTHONPATH": str(Path(ttpfl.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False False"


def test_the_tables_say_what_was_found() -> None:
    text = run("--clients-n", 1000, "--batches-k", 4, "--modules-d", 102, "--direction-h", 2, *LEARNING)
    one = 4 * math.exp(-2 * 1000 * 4 * 0.01 / 9)
    power = (102 * math.log(12 * 2 / 0.1) + math.log(4) - 1000 * 4 * 0.01 / 18) / math.log(10)
    expected = f"{one:.3g} vacuous (10^{power:.0f})"
    assert row(text, "probability of a difference of 0.1 or more, at most") == expected
    assert row(text, "source clients needed (difference 0.1, probability 0.05)").startswith("493 ")
    assert row(text, "number of modules with a rate, d") == "102 given"
    assert row(text, "batches per client, K") == "4 given"
    assert row(text, "Lipschitz constant of the probabilities in the weights, L") == "1 assumed"
    assert row(text, "total") == "0.135"
    assert row(text, "(largest learning rate for which this holds)") == "0.0625"


def test_only_what_the_numbers_allow_is_said() -> None:
    text = run("--epsilon", 0.05)
    assert "source clients needed (difference 0.05, probability 0.05)" in text
    for absent in ("all rates", "at most", "convergence"):
        assert absent not in text
    found = told("--epsilon", 0.05)
    assert (found["all_alpha"], found["convergence"], found["longest_direction"]) == (None, None, None)
    assert list(found["one_alpha"]) == ["clients_needed"]


def test_numbers_of_any_size() -> None:
    huge = told("--clients-n", 10**400, "--modules-d", 10**6, "--direction-h", 1e300, "--epsilon", 1e-150)
    assert huge["all_alpha"]["clients_needed"] > 10**300
    assert huge["all_alpha"]["log_bound"] < -1e90
    assert told("--clients-n", 10**400)["one_alpha"]["log_bound"] is None  # below all floating-point numbers
    assert "10^-inf" in run("--clients-n", 10**400)
    assert "e+300" in run("--epsilon", 1e-150)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clients-n", 0], "error: --clients-n must be a positive integer, got 0"),
        (["--batches-k", 0], "error: --batches-k must be a positive integer, got 0"),
        (["--epsilon", 2], "error: --epsilon must be a number above 0 and at most 1, got 2.0"),
        (["--failure", 1], "error: --failure must be a number above 0 and below 1, got 1.0"),
        (["--modules-d", 3, "--direction-h", -1], "error: --direction-h must be a positive number, got -1.0"),
        (["--modules-d", 0, "--direction-h", 1], "error: --modules-d must be a positive integer, got 0"),
        ([*BALL, "--radius-r", 0], "error: --radius-r must be a positive number, got 0.0"),
        ([*BALL, "--lipschitz-l", -1], "error: --lipschitz-l must be a positive number, got -1.0"),
        (
            [*BALL, "--clients-n", 3, *LEARNING, "--rounds-t", 0],
            "error: --rounds-t must be a positive integer, got 0",
        ),
        (
            [*BALL, "--clients-n", 3, *LEARNING, "--zeta", -2],
            "error: --zeta must be a non-negative number, got -2.0",
        ),
        (
            ["--beta", 1, "--clients-n", 3],
            "needs --sigma, --zeta, --eta, --tau, --rounds-t, --distance, --d",
        ),
        ([*LEARNING, "--clients-n", 3, "--direction-h", 50], "(4 H^2 beta) = 0.0001 (the paper prints"),
        (["--clients", 3], "needs --model; source clients are --clients-n"),
        (["--batch-size", 3], "needs --model; batches are --batches-k"),
        (["--model", "nowhere.safetensors"], "nowhere.safetensors: No such file"),
    ],
)
def test_errors_are_one_line(words: list[object], message: str) -> None:
    said = run(*words, code=1)
    assert message in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, Path]:
    """A model of which its file says that it was trained on some clients, and the folder of these."""
    generator, data = np.random.default_rng(0), tmp_path / "data"
    (data / "source").mkdir(parents=True)
    for number in range(5):
        x = generator.integers(0, 50 * (number + 1), (100, 32, 32, 3), np.uint8)
        np.savez(data / "source" / f"site{number}.npz", x=x, y=np.arange(100) % 3)
    manifest = ttpfl.data.federate("arrays", data_dir=data).manifest
    network = {"name": "shallow_cnn", "num_classes": 3, "image_size": 32}
    said = {"name": "arrays", "options": {}, "choices": {}}
    path = tmp_path / "model" / "model.safetensors"
    path.parent.mkdir()
    save_model(path, build(**network), build=network, data=said, population=manifest.digest)
    return path, data


def test_a_model_tells_its_numbers(trained: tuple[Path, Path]) -> None:
    path, data = trained
    found = told("--model", path, "--batch-size", 8, "--data-dir", data)
    model, _ = ttpfl.models.load_model(path)
    reference = Reference(model)
    lengths = [
        (float(h.norm()), name)
        for client in ttpfl.data.federate("arrays", data_dir=data).population.source
        for x in client.validation().x.split(8)
        for name, h in reference.direction(x).items()
    ]
    length, longest = max(lengths)
    assert found["numbers"]["direction_h"] == pytest.approx(length, rel=1e-4)
    assert found["longest_direction"] == {"module": longest, "clients": 5, "batch_size": 8}
    numbers = {name: found["numbers"][name] for name in ("clients_n", "batches_k", "modules_d")}
    assert numbers == {"clients_n": 5, "batches_k": 2, "modules_d": 23}  # 20 images are for validation
    assert found["origins"]["direction_h"] == "measured"
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]  # nothing is left behind


def test_fewer_clients_and_numbers_that_go_first(trained: tuple[Path, Path]) -> None:
    path, data = trained
    every = told("--model", path, "--data-dir", data)
    few = told("--model", path, "--data-dir", data, "--clients", 2, "--clients-n", 1000)
    assert few["longest_direction"]["clients"] == 2
    assert (few["numbers"]["clients_n"], few["origins"]["clients_n"]) == (1000, "given")
    assert few["numbers"]["direction_h"] <= every["numbers"]["direction_h"]
    text = run("--model", path, "--data-dir", data, "--clients", 99)
    assert "on validation data of 5 source clients in batches of 20" in text
    assert row(text, "largest norm of a module's direction, H").endswith("measured")


def test_rates_tell_their_number_and_norm(trained: tuple[Path, Path]) -> None:
    """With a label prior, whose direction has a bound; and the prior alone."""
    path, data = trained
    model, _ = ttpfl.models.load_model(path)
    for only, count in ((None, 24), ("prior", 1)):
        rates = ttpfl.Rates.zeros(model, only=only, prior=[1.0, 1.0, 1.0])
        rates.with_values(torch.full((count,), 0.5)).save(path.parent / "rates.safetensors")
        found = told("--model", path, "--rates", path.parent / "rates.safetensors", "--data-dir", data)
        assert found["numbers"]["modules_d"] == count
        assert found["numbers"]["radius_r"] == pytest.approx(0.5 * count**0.5)
    assert found["longest_direction"]["module"] == "label_prior"
    assert found["numbers"]["direction_h"] == pytest.approx(3**0.5 * math.log(1 + 1 / SMOOTHING))
    assert "--rates needs --model" in run("--rates", path.parent / "rates.safetensors", code=1)
