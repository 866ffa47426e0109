"""The index of an export: which model and rates files it has, and what they were computed from.

An export is a folder with model and rates files, a README, and this index, `export.json`, which is written
last: a folder without it is incomplete.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict, cast

from ttpfl.errors import ReportError
from ttpfl.results.files import read_json, write
from ttpfl.results.schema import LearnedRates, Results, RoundRecord
from ttpfl.util.checksum import is_sound
from ttpfl.util.settings_kit import as_type

FORMAT, VERSION = "ttpfl.export", 1
INDEX, README = "export.json", "README.md"
MODEL, RATES = "model", "rates"
FILES = {MODEL: "model.safetensors", RATES: "rates.safetensors"}
"""The stages whose files are exported, and what these files are called in a stage's folder."""


class Trained(TypedDict):
    """The result of training."""

    history: list[RoundRecord]


_RESULTS = {MODEL: Trained, RATES: LearnedRates}


class ExportedFile(TypedDict):
    """A model or rates file, with the stage that computed it."""

    stage: str
    file: str
    """Its path in the export."""
    sha256: str
    uses: list[str]
    """The cases, seeds and entries that it is for."""
    inputs: list[dict[str, Any]]
    """The settings that it is the result of; several if they led to the same result."""
    result: dict[str, Any]
    seconds: float
    versions: list[dict[str, Any]]


class Export(TypedDict):
    """The content of the index."""

    format: str
    version: int
    recipe: dict[str, Any]
    """Name, title, preset, changes and command."""
    files: list[ExportedFile]


def write_export(folder: Path, results: Results, files: Sequence[ExportedFile]) -> Export:
    """Write the index of the files in a folder."""
    recipe = {key: results["recipe"].get(key) for key in ("name", "title", "preset", "set", "command")}
    content = {"format": FORMAT, "version": VERSION, "recipe": recipe, "files": list(files)}
    return cast(Export, write(folder / INDEX, content))


def read_export(folder: Path) -> Export:
    """Read and check the index of an export; an error is a ReportError."""
    path = folder / INDEX
    if not path.is_file():
        raise ReportError(f"{path} does not exist: name a folder of `ttpfl results export`")
    content = read_json(path)
    as_type(str(path), content, Export, ReportError)
    if not is_sound(content):
        raise ReportError(f"{path} is damaged (its checksum does not match): export or download it again")
    if (content["format"], content["version"]) != (FORMAT, VERSION):
        raise ReportError(
            f"{path} has format {content['format']!r} {content['version']!r}; "
            f"this version reads {FORMAT!r} {VERSION}: upgrade ttpfl, or export again"
        )
    for entry in content["files"]:
        if entry["stage"] not in FILES or not _is_inside(entry["file"]):
            raise ReportError(f"{path} names {entry['file']!r:.80}, which is not a file of an export")
        as_type(f"{path}: {entry['file']}", entry["result"], _RESULTS[entry["stage"]], ReportError)
    return cast(Export, content)


def _is_inside(file: str) -> bool:
    """Whether a path stays within its folder, on any system.

    >>> [_is_inside(file) for file in ("hybrid-seed-0/model.safetensors", "../model", "/model", "c:/model")]
    [True, False, False, False]
    """
    return not {"\\", ":"} & {*file} and not {"/", ".."} & {*PurePosixPath(file).parts} and bool(file)
