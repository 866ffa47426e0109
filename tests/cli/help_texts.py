"""The help pages of every command, as text.

python tests/cli/help_texts.py          prints all of them as JSON
python tests/cli/help_texts.py --write  renews tests/cli/golden, those of the main commands (`make golden`)
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from ttpfl.cli import app

GOLDEN = Path(__file__).parent / "golden"
MAIN = ("ttpfl", "ttpfl-train", "ttpfl-learn", "ttpfl-personalize", "ttpfl-run")
MORE = {("train",), ("learn",)}  # commands with a second page
# Decides how wide it is, and that there are no colours; read when typer is imported.
ENVIRONMENT = {"COLUMNS": "100", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and of every group of commands."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def help_texts() -> dict[str, str]:
    texts = {}
    for words in commands(get_command(app)):
        name = "-".join(("ttpfl", *words))
        texts[name] = help_text(*words, "--help")
        if words in MORE:
            texts[f"{name}-more"] = help_text(*words, "--help-more")
    return texts


def help_text(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), prog_name="ttpfl", env=ENVIRONMENT)
    assert result.exit_code == 0, (words, result.output)
    lines = (line.rstrip() for line in result.stdout.splitlines())
    return "\n".join(lines).strip() + "\n"


def golden(texts: dict[str, str]) -> dict[str, str]:
    """Those whose every word is compared."""
    return {name: text for name, text in texts.items() if name.removesuffix("-more") in MAIN}


if __name__ == "__main__":
    texts = help_texts()
    if "--write" in sys.argv:
        for path in GOLDEN.glob("*.txt"):
            path.unlink()
        for name, text in golden(texts).items():
            (GOLDEN / f"{name}.txt").write_text(text, "utf-8")
    else:
        print(json.dumps(texts))
