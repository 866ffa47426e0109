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


PACKAGES = {"Layers": "ttpfl", "Layers of core": "ttpfl.core", "Layers of federation": "ttpfl.federation"}
Layers = dict[str, list[list[str]]]


def section(title: str) -> str:
    text = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert text is not None, title
    return text.group(1)


def layers(title: str) -> Layers:
    """The lines of a diagram: a layer's name, and the parts that stand side by side in it."""
    diagram = re.search(r"```text\n(.*?)```", section(title), re.S)
    assert diagram is not None
    lines = (line.split(maxsplit=1) for line in diagram.group(1).splitlines())
    return {name: [column.split() for column in parts.split("|")] for name, parts in lines}


def places(title: str) -> dict[str, Place]:
    placed: dict[str, Place] = {}
    for layer, columns in enumerate(layers(title).values()):
        for column, parts in enumerate(columns):
            for part in parts:
                assert part not in placed, f"{part} is there twice"
                placed[part] = Place(layer, column)
    return placed


def part_of(module: str, package: str = "ttpfl") -> str:
    """What the page calls the file or folder of a package that a module is in."""
    path = module.removeprefix(package).removeprefix(".")
    if not path:
        return "__init__"
    first = path.split(".")[0]
    return f"{first}/" if (ROOT / "src" / Path(*package.split(".")) / first).is_dir() else first


def inside(package: str) -> Graph:
    """The modules of a package, and the imports between them."""
    prefix = f"{package}."
    return {
        module: {other for other in imports if other == package or other.startswith(prefix)}
        for module, imports in import_graph().items()
        if module == package or module.startswith(prefix)
    }


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


def upward(graph: Graph, title: str) -> list[str]:
    """Imports that the page does not allow."""
    where, package, bad = places(title), PACKAGES[title], []
    for module, imports in graph.items():
        for other in imports:
            here, there = where[part_of(module, package)], where[part_of(other, package)]
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


@pytest.mark.parametrize("title", PACKAGES)
def test_every_module_has_one_place(title: str) -> None:
    package = PACKAGES[title]
    parts = {part_of(module, package) for module in inside(package)}
    # The folder of the core exports nothing.
    assert parts - ({"__init__"} if package == "ttpfl.core" else set()) == set(places(title))


@pytest.mark.parametrize("title", PACKAGES)
def test_every_layer_is_explained(title: str) -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\*", section(title), re.M) == list(layers(title))


@pytest.mark.parametrize("title", PACKAGES)
def test_imports_go_downwards(title: str) -> None:
    graph = {module: imports for module, imports in inside(PACKAGES[title]).items() if module != "ttpfl.core"}
    assert not upward(graph, title)


def test_no_module_needs_itself() -> None:
    order = list(TopologicalSorter(import_graph()).static_order())  # a CycleError names a circle
    assert order.index("ttpfl.core.rates") < order.index("ttpfl.core.personalizer")


@pytest.mark.parametrize("module", ["personalizer", "learning", "direction_norms"])
def test_the_core_knows_no_experiment_report_or_command(module: str) -> None:
    modules = reached(import_graph(), f"ttpfl.core.{module}")
    assert {part_of(name) for name in modules} <= {"core/", "util/", "errors", "_moved", "_version"}
    assert {
        "ttpfl.core.network",
        "ttpfl.core.direction",
        "ttpfl.core.rates",
    } <= modules  # the walk sees something


@pytest.mark.parametrize(
    "title", ["Walk: from an image to the report", "Walk: one batch through a `Personalizer`"]
)
def test_walks_visit_every_file_once(title: str) -> None:
    files = re.findall(r"`([\w/]+\.py)`", section(title))
    assert len(files) > 5
    assert len(set(files)) == len(files)
    assert [file for file in files if not (ROOT / "src/ttpfl" / file).is_file()] == []


def test_a_walk_follows_imports() -> None:
    """The files of one batch are those that the personalizer needs."""
    files = re.findall(r"`([\w/]+)\.py`", section("Walk: one batch through a `Personalizer`"))
    assert {f"ttpfl.{file.replace('/', '.')}" for file in files} <= reached(
        import_graph(), "ttpfl.core.personalizer"
    )


def test_wrong_imports_are_found() -> None:
    for title, module, other in (
        ("Layers", "ttpfl.core.rates", "ttpfl.federation.settings"),  # upwards
        ("Layers", "ttpfl.methods.tent", "ttpfl.federation.training"),  # to the side
        ("Layers", "ttpfl.errors", "ttpfl"),
        ("Layers of core", "ttpfl.core.rates", "ttpfl.core.personalizer"),
        ("Layers of federation", "ttpfl.federation.common.jobs", "ttpfl.federation.engine.rounds"),
    ):
        assert upward({module: {other}}, title) == [f"{module} imports {other}"]
    assert not upward({"ttpfl.cli.data": {"ttpfl.data.show", "ttpfl.cli.output"}}, "Layers")
