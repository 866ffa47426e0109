"""What the pages of the documentation show, for tests."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: Path) -> list[tuple[str, str]]:
    """The kind and the content of every block of code."""
    return re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)


def commands(text: str) -> Iterator[tuple[list[str], str | None]]:
    """The words of every `ttpfl` command in lines of a shell, and the file that its answer goes to."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in re.split(r" \| ", line):
            if not part.startswith("ttpfl "):
                continue
            words = shlex.split(part, comments=True)
            target = words[words.index(">") + 1] if ">" in words else None
            yield words[1 : words.index(">")] if target else words[1:], target
