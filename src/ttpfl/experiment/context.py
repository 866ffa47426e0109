"""What all stages of an experiment share: the store, the clients in memory, and progress."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path

from ttpfl._moved import renamed
from ttpfl.data.federate import Federated, federate
from ttpfl.data.registry import ENVIRONMENT, data_directory
from ttpfl.errors import DataMissingError
from ttpfl.experiment.config import Config
from ttpfl.experiment.exported import Exported
from ttpfl.experiment.inputs import population_inputs
from ttpfl.experiment.store import Store
from ttpfl.federation.checkpoints.checkpoint import rounds_done
from ttpfl.federation.checkpoints.progress import Advance
from ttpfl.federation.settings import RunSettings

Watch = Callable[[str, str], AbstractContextManager[Advance]]
"""Maps a title and a unit to a context manager whose value is a function that reports progress."""


def unwatched(title: str, unit: str) -> AbstractContextManager[Advance]:
    """Show no progress."""
    return nullcontext(lambda done, total, figures="", /: None)


class ExperimentContext:
    """What stages need to compute.

    Args:
        store: Where stages are stored.
        data_dir: The data directory; see `ttpfl.data.load`.
        workers: The number of processes; one per core if None.
        watch: Shows progress.
        exported: Models and rates to use instead of training and learning.
    """

    def __init__(
        self,
        store: Store,
        data_dir: Path | None = None,
        workers: int | None = None,
        watch: Watch = unwatched,
        exported: Exported | None = None,
    ) -> None:
        self.store, self.workers, self._watch, self._data_dir = store, workers, watch, data_dir
        self.exported = exported
        self.stage = ""  # shown with the progress
        self._clients = lru_cache(maxsize=1)(self._federate)  # one population may fill the memory

    def watch(self, title: str, unit: str) -> AbstractContextManager[Advance]:
        """Show progress in units of `unit`."""
        return self._watch(f"{self.stage}: {title}" if self.stage else title, unit)

    def clients(self, config: Config) -> Federated:
        """The population of a case; the last one stays in memory."""
        return self._clients(json.dumps(population_inputs(config)))

    def _federate(self, population: str) -> Federated:
        inputs = json.loads(population)
        with self.watch("building clients", "client") as advance:
            return federate(
                inputs["name"],
                data_dir=self._data_dir,
                options=inputs["options"],
                prepare=True,
                workers=self.workers,
                progress=advance,
                **inputs["choices"],
            )

    def file(self, name: str, key: str) -> Path:
        """A file in the data directory, or at its own path; `key` is its key in the recipe."""
        path = data_directory(self._data_dir) / name
        for candidate in (path, Path(name)):
            if candidate.is_file():
                return candidate
        raise DataMissingError(
            f"{path.absolute()} does not exist, but the recipe names it as {key}: put it there "
            f"(--data-dir or {ENVIRONMENT} sets another data directory), or use --set {key}=FILE"
        )

    def run_dir(self, settings: RunSettings, shared: Path, own: Path) -> Path:
        """The folder for the rounds of a run.

        Runs that differ only in their number of rounds share a folder, so that a longer run continues a
        shorter one. If the shared folder has more rounds than needed, the run starts in its own.
        """
        return shared if rounds_done(shared) <= settings.rounds else own


__getattr__ = renamed(__name__)
