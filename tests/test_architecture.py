"""The layers in docs/architecture.md are those of the code: imports go downwards, and nowhere in a circle."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
Graph = Mapping[str, set[str]]


class Place(NamedTuple):
    """The number of a layer, counted from above, and that of a part of it, counted from the left."""

    layer: int
    column: int


def layers() -> dict[str, list[list[str]]]:
    """The lines of the page's diagram: a layer's name, and the parts that stand side by side in it."""
    diagram = re.search(r"## Layers\n.*?```text\n(.*?)```", PAGE, re.S)
    assert diagram is not None
    found = {}
    for line in diagram.group(1).splitlines():
        name, parts = line.split(maxsplit=1)
        found[name] = [column.split() for column in parts.split("|")]
    return found


def places() -> dict[str, Place]:
    found: dict[str, Place] = {}
    for layer, columns in enumerate(layers().values()):
        for column, parts in enumerate(columns):
            for part in parts:
                assert part not in found, f"{part} is there twice"
                found[part] = Place(layer, column)
    return found


def part_of(module: str) -> str:
    """What the page calls the file or folder that a module is in."""
    _, *path = module.split(".")
    if not path:
        return "__init__"
    return f"{path[0]}/" if (ROOT / "src/ttpfl" / path[0]).is_dir() else path[0]


@cache
def import_graph() -> Graph:
    """The modules of this package that each of them imports, wherever in the file; nothing is executed."""
    source = ROOT / "src"
    files = {}
    for path in source.glob("ttpfl/**/*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.module, f"{module}: relative imports are not understood here"
                both = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
                names = [name if name in files else package for name, package in both]
            else:
                continue
            graph[module] |= {name for name in names if name in files}
    return graph


def upward(graph: Graph, where: Mapping[str, Place]) -> list[str]:
    """Imports that the page does not allow."""
    bad = []
    for module, imports in graph.items():
        for other in imports:
            here, there = where[part_of(module)], where[part_of(other)]
            if there.layer < here.layer or (there.layer == here.layer and there.column != here.column):
                bad.append(f"{module} imports {other}")
    return bad


def reached(graph: Graph, begin: str) -> set[str]:
    seen, waiting = set(), [begin]
    while waiting:
        if (module := waiting.pop()) not in seen:
            seen.add(module)
            waiting += graph[module]
    return seen


def test_every_module_has_one_place() -> None:
    assert {part_of(module) for module in import_graph()} == set(places())


def test_every_layer_is_explained() -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\*", PAGE, re.M) == list(layers())


def test_imports_go_downwards() -> None:
    assert not upward(import_graph(), places())


def test_no_module_needs_itself() -> None:
    order = list(TopologicalSorter(import_graph()).static_order())  # a CycleError names a circle
    assert order.index("ttpfl.rates") < order.index("ttpfl.core.personalizer")


@pytest.mark.parametrize("module", ["personalizer", "learning", "norms"])
def test_the_core_knows_no_experiment_report_or_command(module: str) -> None:
    parts = {part_of(name) for name in reached(import_graph(), f"ttpfl.{module}")}
    assert not parts & {"experiment/", "report/", "cli/", "flower/", "federation/", "data/", "models/"}
    assert {"network", "direction", "rates"} <= parts  # the walk does see something


def test_wrong_imports_are_found() -> None:
    where = places()
    for module, other in (
        ("ttpfl.rates", "ttpfl.core.personalizer"),  # upwards
        ("ttpfl.methods.tent", "ttpfl.federation.engine.rounds"),  # to the side
        ("ttpfl.errors", "ttpfl"),
    ):
        assert upward({module: {other}}, where) == [f"{module} imports {other}"]
    assert not upward({"ttpfl.cli.data": {"ttpfl.data.show", "ttpfl.cli.output"}}, where)
