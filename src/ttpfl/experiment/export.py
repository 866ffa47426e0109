"""Exporting the models and rates behind results, so that they can be published and continued from."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttpfl.errors import ReportError
from ttpfl.experiment.store import Finished, Store, file_digest
from ttpfl.models.files import read_card
from ttpfl.results.export_files import FILES, MODEL, RATES, Export, ExportedFile, write_export
from ttpfl.results.schema import Results, Run


def export(results: Results, store: Store, out: Path) -> Export:
    """Copy the model and rates files of every case and seed from the stages of its run into a folder.

    Stages are found by what they computed, so the recipe may have changed since, and nothing it names is run.

    Args:
        results: The results of a run.
        store: The stages of this run.
        out: The folder to write into: new, or empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ReportError(f"{out} exists and is not an empty folder: choose another one (--out)")
    found = list(_found(results, store)) if "hash" in results["recipe"] else []  # before anything is written
    if not found:
        raise ReportError(
            f"the results of {results['recipe']['name']} are not of a recipe that trains models: "
            "name those of `ttpfl run`"
        )
    copies = _Copies(out)
    for part in found:
        copies.add(*part)
    return write_export(out, results, list(copies.files.values()))


def _found(results: Results, store: Store) -> Iterator[tuple[str, str, str, list[Finished]]]:
    """Every model and its rates: the stage's name, a path in the export, what it is for, and its stages."""
    for run in results["runs"]:
        if "train.rounds" not in run["config"]:
            continue  # a toy example
        place = _name("-".join(filter(None, (run["case"], f"seed-{run['seed']}"))))
        where = f"case {run['case']}, seed {run['seed']}" if run["case"] else f"seed {run['seed']}"
        yield MODEL, place, where, _all(store, MODEL, where, _is_model_of(run))
        for entry in run["entries"]:
            if (rates := entry["rates"]) is not None:
                use = f"{where}: {entry['label']}"
                found = _all(store, RATES, use, _has_result(rates))
                yield RATES, f"{place}/{RATES}-{_name(entry['label'])}", use, found


def _has_result(result: object) -> Callable[[Finished], bool]:
    text = _text(result)
    return lambda stage: _text(stage.result) == text


def _is_model_of(run: Run) -> Callable[[Finished], bool]:
    config, history = run["config"], _text(run["training"])

    def matches(stage: Finished) -> bool:
        return (
            _text(stage.result.get("history")) == history
            and stage.inputs["rounds"] == config["train.rounds"]
            and stage.inputs["model"]["name"] == config["model.name"]
            and read_card(stage.files[FILES[MODEL]]).get("population") == run["population"]["digest"]
        )

    return matches


def _all(store: Store, stage: str, where: str, matches: Callable[[Finished], bool]) -> list[Finished]:
    """Stages with the same result, such as rates that were learned with different maximum rounds."""
    if found := [finished for finished in store.finished(stage, [FILES[stage]]) if matches(finished)]:
        return found
    raise ReportError(
        f"{store.root / stage} has no {stage} that these results were computed with ({where}): "
        "name the folder of the run that wrote them (--runs), or run the recipe again"
    )


@dataclass(frozen=True)
class _Copies:
    """The files of an export; cases that share a model or rates share a file."""

    out: Path
    files: dict[Path, ExportedFile] = field(default_factory=dict)

    def add(self, stage: str, place: str, use: str, found: list[Finished]) -> None:
        (source,) = found[0].files.values()
        if source not in self.files:
            name = f"{place}/{FILES[MODEL]}" if stage == MODEL else f"{place}.safetensors"
            self.files[source] = self._copied(stage, name, source, found)
        self.files[source]["uses"].append(use)

    def _copied(self, stage: str, name: str, source: Path, found: list[Finished]) -> ExportedFile:
        target = self.out / name
        while target.exists():  # cases or labels that differ only in signs
            target = target.with_stem(f"{target.stem}-other")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return {
            "stage": stage,
            "file": target.relative_to(self.out).as_posix(),
            "sha256": file_digest(target),
            "uses": [],
            "inputs": [finished.inputs for finished in found],
            "result": found[0].result,
            "seconds": found[0].seconds,
            "versions": found[0].versions,
        }


def _name(text: str) -> str:
    """A name for a file or folder on any system.

    >>> _name("em, 2 iterations"), _name("../x")
    ('em-2-iterations', 'x')
    """
    return re.sub(r"[^A-Za-z0-9_=-]+", "-", text).strip("-") or "other"


def _text(content: Any) -> str:
    """Plain data as text, in which NaN equals NaN."""
    return json.dumps(content, sort_keys=True)
