"""What the shell completes, and that it need not wait for torch."""

import pytest
from typer.testing import CliRunner

from tests.helpers.program import python
from ttpfl.cli import app, completion
from ttpfl.data import names
from ttpfl.data.population_config import SHIFTS
from ttpfl.evaluation.streams import ALL_ORDERS
from ttpfl.experiment.recipe import names as recipe_names
from ttpfl.experiment.recipe import presets
from ttpfl.methods import names as method_names
from ttpfl.models.build import MODELS

COMPLETE = """
import sys
from ttpfl.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules
"""


def test_names_are_those_of_the_registries() -> None:
    assert completion.data_sets() == sorted(names())
    assert completion.methods() == sorted(method_names())
    assert completion.models() == list(MODELS)
    assert completion.orders() == list(ALL_ORDERS)
    assert completion.recipes() == recipe_names()
    assert set(completion.presets()) == {preset for name in recipe_names() for preset in presets(name)}
    assert completion.shifts() == list(SHIFTS)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ttpfl", "pers"], ["personalize"]),
        (["ttpfl", "train", "cifar"], ["cifar10", "cifar100"]),
        (["ttpfl", "train", "--dead"], ["--deadline"]),  # also options that --help leaves to --help-more
        (["ttpfl", "data", "show", "digits", "--shift", "f"], ["feature"]),
        (["ttpfl", "compare", "m.safetensors", "--methods", "none,em"], ["none,em", "none,em-online"]),
        (["ttpfl", "methods", "b"], ["bbse", "bbse-online", "bn-adapt"]),
        (["ttpfl", "run", "table1-cifar10-resnet18", "--preset", ""], ["paper", "cpu", "smoke"]),
    ],
)
def test_bash(words: list[str], found: list[str]) -> None:
    result = CliRunner().invoke(app, [], prog_name="ttpfl", env=asked(words))
    assert (result.exit_code, result.stdout.split()) == (0, found)


def test_torch_is_not_waited_for() -> None:
    code, out, err = python("-c", COMPLETE, **asked(["ttpfl", "methods", "ten"]))
    assert (code, out, err) == (0, "tent\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell: str) -> None:
    result = CliRunner().invoke(app, [], prog_name="ttpfl", env={"_TTPFL_COMPLETE": f"source_{shell}"})
    assert result.exit_code == 0
    assert "_TTPFL_COMPLETE" in result.stdout


def asked(words: list[str]) -> dict[str, str]:
    """How bash asks: the words so far, and which of them is to be completed."""
    return {
        "_TTPFL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
