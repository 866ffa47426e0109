"""`ttpfl methods`: what the registry knows, in words."""

import json
import re
from dataclasses import dataclass, fields

import pytest
from torch import nn
from typer.testing import CliRunner

from ttpfl.cli import app
from ttpfl.methods import Adapter, Method, SourceInfo, get, make, method, names, tunable
from ttpfl.methods.base import _methods
from ttpfl.methods.table import markdown


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["methods", *words])
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stdout


def test_every_method_has_a_row_and_a_paper() -> None:
    rows = {row["name"]: row for row in json.loads(run("--json"))}
    assert list(rows) == list(names())
    for name, row in rows.items():
        assert row["adapts"].endswith("."), name
        assert name == "none" or re.search(r", [A-Z][A-Za-z ]+ (19|20)\d\d\.$", row["paper"]), name
    assert rows["none"]["needs"] == "nothing"
    assert rows["atp-stats"]["needs"] == "learned rates (stats)"
    assert rows["eata"]["needs"] not in ("", "nothing")


@pytest.mark.parametrize("name", names())
def test_every_hyper_parameter_is_there(name: str) -> None:
    shown = {row["name"]: row for row in json.loads(run(name, "--json"))["hyper_parameters"]}
    assert list(shown) == [entry.name for entry in fields(get(name))]
    for key, values in get(name).grid().items():
        assert shown[key]["grid"] == list(values)
    text = run(name)
    for key in shown:
        assert re.search(rf"^ *{key} ", text, re.M)


def test_markdown_is_that_of_the_documentation() -> None:
    assert run("--markdown").strip() in markdown().replace("\n\n\n", "\n\n")
    assert "| `tent` | `lr` | 0.001 | 0.0001, 0.00025, 0.001, 0.0025, 0.01 | learning rate |" in run(
        "tent", "--markdown"
    )


def test_a_method_of_ones_own_is_there_at_once() -> None:
    @method("coin")
    @dataclass(frozen=True)
    class Coin(Method):
        """Nothing adapts; a coin is thrown."""

        sides: int = tunable(2, "of the coin", grid=(2, 6))

        def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
            return make("none").adapter(model, source_info)

    try:
        assert "| `coin` | Nothing adapts; a coin is thrown. | nothing | - |" in run("--markdown")
        assert "| `coin` | `sides` | 2 | 2, 6 | of the coin |" in run("coin", "--markdown")
    finally:
        del _methods["coin"]


def test_an_unknown_method_is_named() -> None:
    result = CliRunner().invoke(app, ["methods", "tant"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "unknown method 'tant'; did you mean 'tent'?" in result.stderr
