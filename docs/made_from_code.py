"""Generate parts of pages from the code when the site is built, so that they are never out of date.

A line `<!-- made from code: NAME -->` in a page is replaced with the output of the function of that name
below.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import griffe
import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from ttpfl._moved import MOVED, RENAMED
from ttpfl.cli import app
from ttpfl.core import rates_file
from ttpfl.data import manifest
from ttpfl.data.natural_clients import NaturalConfig
from ttpfl.data.population_config import PopulationConfig
from ttpfl.data.registry import dataset_info, names
from ttpfl.evaluation import rows
from ttpfl.experiment import run, store
from ttpfl.experiment.config import NO_KEYS, SECTIONS, Data
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.settings import RENAMED as RENAMED_SETTINGS
from ttpfl.methods.base import RENAMED as RENAMED_MEMBERS
from ttpfl.methods.table import built_in, markdown
from ttpfl.models import files as model_files
from ttpfl.results import export_files

MARK = re.compile(r"^<!-- made from code: ([a-z ]+) -->$", re.M)


def on_page_markdown(text: str, **more: Any) -> str:
    """Called by MkDocs for every page."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), text)


def methods() -> str:
    """All test-time methods with their hyper-parameters."""
    return markdown(built_in())


def data_sets() -> str:
    """All data sets with their licences."""
    lines = [f"| `{info.name}` | {info.title} | {info.licence} |" for info in map(dataset_info, names())]
    return "\n".join(["| name | content | licence, as stated |", "| --- | --- | --- |", *lines])


def old_names() -> str:
    """Modules, names and settings of version 0.1, and what they are now."""
    modules = [f"| `ttpfl.{old}` | `ttpfl.{new}` |" for old, new in MOVED.items()]
    attributes = [
        f"| `ttpfl.{module}.{old}` | `{new if '.' in new else f'ttpfl.{module}.{new}'}` |"
        for module, changes in RENAMED.items()
        for old, new in changes.items()
    ]
    keys = [f"| setting `{old}` | `{new}` |" for old, new in RENAMED_SETTINGS.items()]
    members = [f"| `Method.{old}` | `Method.{new}` |" for old, new in RENAMED_MEMBERS]
    rows = [*modules, *attributes, *keys, *members]
    rows += ["| `Images.facts` | `Images.info` |", "| `Federated.answers` | `Federated.target_labels` |"]
    rows += ["| `Manifest.setting` | `Manifest.config` |"]
    return "\n".join(["| in 0.1 | now |", "| --- | --- |", *rows])


def commands() -> str:
    """The help of every command."""
    program = get_command(app)
    for command in _all(program):  # typer would truncate the one-line help of commands in a group
        command.short_help = (command.help or "").partition("\n\n")[0]
    text = get_docs_for_click(obj=program, ctx=typer.Context(program, info_name="ttpfl"), name="ttpfl")
    return text.partition("\n")[2]  # the page has its own title


def recipe_keys() -> str:
    """Every key of every section of a recipe."""
    return "\n".join(_section(name, kind) for name, kind in SECTIONS.items())


def formats() -> str:
    """The version of every file format."""
    versions = {
        "rates": ("`version` of its card", rates_file.VERSION),
        "model": ("`version` of its card", model_files.VERSION),
        "checkpoint": ("`version` of its card", checkpoint.VERSION),
        "manifest": ("`format`", manifest.FORMAT),
        "results": ("`format`", run.FORMAT),
        "export": ("`version`", export_files.VERSION),
        "stage": ("`version`", store.VERSION),
        "rows": ("`version` of its first line", rows.VERSION),
    }
    lines = [f"| {name} | {place} | {version} |" for name, (place, version) in versions.items()]
    return "\n".join(["| file | place of the version | version |", "| --- | --- | --- |", *lines])


def examples() -> str:
    """The README of the examples, each with its code."""
    folder = Path(__file__).parents[1] / "examples"
    text = (folder / "README.md").read_text("utf-8").partition("\n")[2]  # the page has its own title
    head, *parts = re.split(r"^## ", text, flags=re.M)
    for number, part in enumerate(parts):
        code = (folder / part.split("`")[1]).read_text("utf-8")
        parts[number] = f"## {part.rstrip()}\n\n```python\n{code}```\n"
    return "\n".join([head, *parts])


PARTS: dict[str, Callable[[], str]] = {
    "methods": methods,
    "data sets": data_sets,
    "old names": old_names,
    "commands": commands,
    "recipe keys": recipe_keys,
    "formats": formats,
    "examples": examples,
}


def _all(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from _all(inner)


def _section(name: str, kind: type[Any]) -> str:
    kinds = (Data, PopulationConfig, NaturalConfig) if kind is Data else (kind,)
    rows = [row for cls in kinds for row in _rows(cls)]
    return "\n".join([f"### [{name}]", "", "| key | default | meaning |", "| --- | --- | --- |", *rows, ""])


def _rows(kind: type[Any]) -> Iterator[str]:
    parsed = griffe.load(f"{kind.__module__}.{kind.__qualname__}")
    for entry in fields(kind):
        if entry.name in (*NO_KEYS, "choices"):
            continue
        words = entry.metadata.get("help")
        if words is None and (docstring := parsed.members[entry.name].docstring):
            words = " ".join(docstring.value.split())
        yield f"| `{entry.name}` | {_default(entry)} | {words or ''} |".replace("  |", " |")


def _default(entry: "Field[Any]") -> str:
    value = entry.default if entry.default is not MISSING else entry.default_factory()  # type: ignore[misc]
    plain = {None: "not set", True: "`true`", False: "`false`"}
    return plain[value] if value is None or isinstance(value, bool) else f"`{value!r}`".replace("'", '"')
