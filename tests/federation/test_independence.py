"""What every engine shares knows of no engine."""

import ast
from pathlib import Path

import pytest

import ttpfl

SOURCE = Path(ttpfl.__file__).parent
ENGINES = {
    "ttpfl.federation.engine.in_process",
    "ttpfl.federation.engine.processes",
    "ttpfl.federation.engine.session",
}


def imported(module: str) -> set[str]:
    """All modules of this library that a module needs, directly or not."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = SOURCE.parent / Path(*name.split("."))
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        # The top gathers everything, for users' convenience: nobody needs it for that.
        if name in seen or name == "ttpfl" or not file.exists():
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return seen


@pytest.mark.parametrize(
    "module",
    [
        "ttpfl.federation.clients.local_training",
        "ttpfl.federation.server.aggregation",
        "ttpfl.federation.clients.model_work",
        "ttpfl.federation.clients.rate_work",
        "ttpfl.federation.server.rate_average",
        "ttpfl.federation.common.state_vector",
        "ttpfl.core.metric_sums",
        "ttpfl.federation.common.traffic",
        "ttpfl.core.learning",  # refinement at a client, and the sampler
    ],
)
def test_pure_parts_import_no_engine(module: str) -> None:
    assert not imported(module) & ENGINES


@pytest.mark.parametrize(
    "module", ["ttpfl.methods", "ttpfl.methods.tuning", "ttpfl.methods.table", "ttpfl.evaluation"]
)
def test_methods_and_their_evaluation_do_without_a_federation(module: str) -> None:
    assert not [name for name in imported(module) if name.startswith("ttpfl.federation")]


def test_the_walk_finds_engines() -> None:
    assert imported("ttpfl.federation.training") >= ENGINES
