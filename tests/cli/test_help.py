"""What `--help` says: word by word for the main commands; that it fits a screen, and is quick."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import ttpfl
from tests.cli.help_texts import ENVIRONMENT, GOLDEN, MORE, golden
from tests.helpers.program import python
from ttpfl.cli import CONTENTS, app

ROOT = Path(__file__).parents[2]
WITHOUT_HEAVY = """
import sys
from ttpfl.cli import main
sys.argv = ["ttpfl", {option!r}]
try:
    main()
finally:
    print([name for name in ("torch", "numpy") if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    code, out, err = python(str(Path(__file__).with_name("help_texts.py")), **ENVIRONMENT)
    assert code == 0, err
    found: dict[str, str] = json.loads(out)
    return found


def test_every_word_is_as_agreed(texts: dict[str, str]) -> None:
    for package in ("typer", "rich"):
        (pinned,) = re.findall(rf"^{package}==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
        if version(package) != pinned:
            pytest.skip(f"{package} is {version(package)}, the texts were written with {pinned}")
    agreed = {path.stem: path.read_text("utf-8") for path in GOLDEN.glob("*.txt")}
    assert golden(texts) == agreed, "if that is intended: make golden"


def test_every_page_fits_a_screen(texts: dict[str, str]) -> None:
    assert {name: lines for name, text in texts.items() if (lines := text.count("\n")) > 40} == {}


def every_command(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, *words, name)


def test_every_command_and_every_option_has_a_sentence() -> None:
    sentence = re.compile(r"[A-Z].*\.", re.S)
    for words, command in every_command(get_command(app)):
        assert sentence.fullmatch(command.help), words
        for one in command.params:
            if not one.hidden:
                assert sentence.fullmatch(one.help), (words, one.name)


def test_every_option_is_on_one_of_the_pages(texts: dict[str, str]) -> None:
    for words, command in every_command(get_command(app)):
        name = "-".join(("ttpfl", *words))
        pages = [texts[name], *([texts[f"{name}-more"]] if words in MORE else [])]
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden:
                shown = [
                    bool(re.search(rf"^│ \*? +{one.opts[0]} |^│ {one.opts[0]} ", p, re.M)) for p in pages
                ]
                assert sum(shown) == 1, (words, one.opts)


def test_help_is_a_table_of_contents(texts: dict[str, str]) -> None:
    shown = [line.split()[1] for line in texts["ttpfl"].splitlines() if re.match("│ [a-z]", line)]
    assert shown == [name for commands in CONTENTS.values() for name in commands]
    order = ["demo", "data", "train", "learn", "compare", "run", "report", "personalize", "bound", "methods"]
    assert [name for name in shown if name in order] == [name for name in order if name in shown]


def test_every_command_has_one_line_in_it(texts: dict[str, str]) -> None:
    for panel in texts["ttpfl"].split("╭─")[2:]:
        rows = [line for line in panel.splitlines() if line.startswith("│")]
        assert rows
        assert all(re.match("│ [a-z]", row) for row in rows), panel


def test_exit_codes_are_documented(texts: dict[str, str]) -> None:
    for code in ("0 success", "1 error", "2 wrong usage", "130 interrupted"):
        assert code in texts["ttpfl"]
        assert code in " ".join((ROOT / "docs" / "how-to" / "scripts.md").read_text().split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_torch_and_numpy_are_not_waited_for(option: str) -> None:
    code, out, err = python("-c", WITHOUT_HEAVY.format(option=option))
    assert (code, err) == (0, "[]\n")
    assert ("Usage: ttpfl" if option == "--help" else f"ttpfl {ttpfl.__version__}\n") in out
