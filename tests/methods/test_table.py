"""The table of methods: all of them, as the documentation shows them."""

from dataclasses import dataclass, fields

import pytest
from torch import nn

from ttpfl import methods
from ttpfl.methods import Adapter, Method, SourceInfo, table
from ttpfl.methods.base import _methods


def test_every_method_and_hyper_parameter_has_a_line() -> None:
    lines = table.markdown(table.built_in()).splitlines()
    for name in table.built_in():
        count = sum(line.startswith(f"| `{name}` |") for line in lines)
        assert count == 1 + len(fields(methods.get(name)))
        for key, values in methods.get(name).grid().items():
            [line] = [line for line in lines if line.startswith(f"| `{name}` | `{key}` |")]
            shown = line.split(" | ")[3].split(", ")
            assert len(shown) == len(values)
            for value, text in zip(values, shown, strict=True):
                assert text == "none" if value is None else type(value)(text) == value
    assert len({len(line.split(" | ")) for line in lines if line.startswith("| `")}) == 2


def test_what_is_needed_from_source_clients() -> None:
    needs = {entry.name: entry.needs for entry in table.entries()}
    assert needs["tent"] == "nothing"
    assert needs["atp-params"] == "learned rates (params)"
    assert needs["bbse"].startswith("Confusion matrices")
    assert needs["em"] == "optional: the number of labels of each class."


@dataclass(frozen=True)
class Own(Method):
    """Does a|b."""

    strength: float = methods.tunable(0.5, "how much", (0.1, 0.5, 1.0, 2.0))

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        return methods.make("none").adapter(model, source_info)


def test_a_users_own_method_is_in_it() -> None:
    methods.method("own")(Own)
    try:
        page = table.markdown()
        assert "| `own` | Does a\\|b. | nothing | - |" in page
        assert "| `own` | `strength` | 0.5 | 0.1, 0.5, 1, 2 | how much |" in page
        assert "own" not in table.built_in()
    finally:
        del _methods["own"]
    with pytest.raises(methods.base.MethodError, match="unknown method 'own'"):
        table.entries(["own"])
