"""Options that an engine does not have are told, and not ignored."""

import pytest
from typer.testing import CliRunner

from ttpfl.cli import app

TRAIN = [
    "train",
    "--out",
    "o",
    "--engine",
    "flower",
    "--federation",
    "f",
    "--classes",
    "2",
    "--image-size",
    "8",
]
LEARN = ["learn", "m.safetensors", "--out", "o", "--engine", "flower", "--federation", "f"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ([*TRAIN, "--shift", "label"], "--shift"),
        ([*TRAIN, "--held-out", "one"], "--held-out"),
        ([*TRAIN, "--set", "a=1"], "--set"),
        ([*TRAIN, "--option", "a=1"], "--option"),
        ([*TRAIN, "--data-dir", "d"], "--data-dir"),
        ([*LEARN, "--data-dir", "d"], "--data-dir"),
        (["train", "digits", "--out", "o", "--federation", "f"], "--federation"),
        (["train", "digits", "--out", "o", "--classes", "3"], "--classes"),
        (["train", "digits", "--out", "o", "--image-size", "8"], "--image-size"),
        (["train", "digits", "--out", "o", "--deadline", "0"], "--deadline"),
        (["train", "digits", "--out", "o", "--longest", "3600"], "--longest"),
        (["learn", "m.safetensors", "--out", "o", "--federation", "f"], "--federation"),
        (["learn", "m.safetensors", "--out", "o", "--deadline", "60"], "--deadline"),
        (["learn", "m.safetensors", "--out", "o", "--longest", "9"], "--longest"),
    ],
)
def test_options_of_the_other_engine(words: list[str], option: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert f"{option} needs --engine" in " ".join(done.output.split())
