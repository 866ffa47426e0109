"""Models and rates of an export, which take the place of training and learning."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ttpfl.core.rates import Rates
from ttpfl.errors import DataError, ModelError, RatesError
from ttpfl.experiment.store import Finished, Store, file_digest
from ttpfl.models.files import read_card
from ttpfl.results.export_files import FILES, MODEL, RATES, ExportedFile, read_export

SHOWN = 3
REMEDY = "use the preset and the --set of the export, or leave out --models"


class Exported:
    """The files of an export, found by the inputs of their stages.

    Args:
        folder: A folder of `ttpfl results export`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._files = folder, read_export(folder)["files"]
        self._placed: set[Path] = set()  # folders of stages

    def model(self, inputs: Mapping[str, Any]) -> ExportedFile:
        """The model with these inputs; a ModelError that says what differs if there is none."""
        found = self._find(MODEL, inputs)
        if found is None:
            raise ModelError(
                f"{self.folder} has no model for this recipe{self._nearest(MODEL, inputs)}: {REMEDY}"
            )
        return found

    def place_model(
        self, store: Store, inputs: Mapping[str, Any], build: Mapping[str, Any], population: str
    ) -> None:
        """Store the model in place of training it, after checking its network and the clients it is for."""
        entry = self.model(inputs)
        path = self.folder / entry["file"]
        if (folder := store.folder(MODEL, inputs)) in self._placed:
            return
        finished = self._sound(entry, inputs)
        card = read_card(path)
        if card.get("build") != build:
            raise ModelError(f"{path} has the network {card.get('build')}, but the recipe {build}: {REMEDY}")
        if card.get("population") != population:
            raise DataError(
                f"{path} was trained on clients with the hash {card.get('population')!s:.12}, but those "
                f"here have {population:.12}: get the same files of the data set (see `ttpfl data info`)"
            )
        store.adopt(MODEL, finished)
        self._placed.add(folder)

    def place_rates(self, store: Store, inputs: Mapping[str, Any]) -> bool:
        """Store the rates in place of learning them; False if the export has none with these inputs."""
        entry = self._find(RATES, inputs)
        if entry is None:
            return False
        if (folder := store.folder(RATES, inputs)) not in self._placed:
            finished = self._sound(entry, inputs)
            Rates.load(self.folder / entry["file"])
            store.adopt(RATES, finished)
            self._placed.add(folder)
        return True

    def _sound(self, entry: ExportedFile, inputs: Mapping[str, Any]) -> Finished:
        """The stage with these inputs, if the checksum of its file matches."""
        path = self.folder / entry["file"]
        if not path.is_file():
            raise DataError(f"{path} does not exist, but the export names it: export or download it again")
        if file_digest(path) != entry["sha256"]:
            error = ModelError if entry["stage"] == MODEL else RatesError
            raise error(f"{path} is damaged (its checksum does not match): export or download it again")
        files = {FILES[entry["stage"]]: path}
        return Finished(dict(inputs), entry["result"], files, entry["seconds"], entry["versions"])

    def _find(self, stage: str, inputs: Mapping[str, Any]) -> ExportedFile | None:
        plain = json.loads(json.dumps(inputs))
        return next((entry for entry in self._of(stage) if plain in entry["inputs"]), None)

    def _of(self, stage: str) -> Iterator[ExportedFile]:
        return (entry for entry in self._files if entry["stage"] == stage)

    def _nearest(self, stage: str, inputs: Mapping[str, Any]) -> str:
        """What differs in the most similar file."""
        differing = [
            (differences(one, inputs), entry["file"]) for entry in self._of(stage) for one in entry["inputs"]
        ]
        if not differing:
            return ""
        found, file = min(differing, key=lambda pair: len(pair[0]))
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        return f" (nearest: {file}, where {', '.join(found[:SHOWN])}{more})"


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The settings in which two inputs differ; settings with their default are missing.

    >>> differences({"train": {"lr": 0.1}, "rounds": 1}, {"train": {"lr": 0.2}, "rounds": 1})
    ['train.lr is 0.1, not 0.2']
    """
    one, other = _flat(there), _flat(json.loads(json.dumps(here)))
    default = "the default"
    return [
        f"{key} is {one.get(key, default)!s:.40}, not {other.get(key, default)!s:.40}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key, default) != other.get(key, default)
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
