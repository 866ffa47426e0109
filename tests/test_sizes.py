"""Files, functions and lists of parameters that fit on a screen, or nearly so."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 300, 60, 10

PUBLIC = {
    "ttpfl/federation/rate_learning.py learn",
    "ttpfl/federation/training.py train",
    "ttpfl/federation/learn_rates.py learn_rates",
}
"""The public API may take more parameters."""

KNOWN = {
    "ttpfl/data/federate.py federate",
    "ttpfl/methods/tuning.py tune",
}
"""Still too large. Nothing is added here."""


def too_large(name: str, text: str) -> Iterator[str]:
    if (lines := len(text.splitlines())) > MOST_LINES_OF_A_FILE:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        if (lines := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION:
            yield f"{name} {node.name}: {lines} lines"
        taken = node.args
        count = len([*taken.posonlyargs, *taken.args, *taken.kwonlyargs])
        if count > MOST_PARAMETERS and f"{name} {node.name}" not in PUBLIC:
            yield f"{name} {node.name}: {count} parameters"


def test_nothing_is_too_large() -> None:
    found = [
        line
        for path in SOURCE.rglob("*.py")
        for line in too_large(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert [line for line in found if line.partition(":")[0] not in KNOWN] == []
    assert {line.partition(":")[0] for line in found} == KNOWN


def test_what_is_too_large_is_found() -> None:
    parameters = ", ".join(f"p{number}" for number in range(6))
    text = f"def f({parameters}, *, {parameters.replace('p', 'k')}):\n" + 300 * "    pass\n"
    assert list(too_large("file.py", text)) == [
        "file.py: 301 lines",
        "file.py f: 301 lines",
        "file.py f: 12 parameters",
    ]
