"""What all stages of an experiment share: the store, the clients in memory, and who watches."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path

from ttpfl.data.federate import Federated, federate
from ttpfl.data.registry import ENVIRONMENT, data_directory
from ttpfl.errors import DataMissingError
from ttpfl.experiment.config import Config
from ttpfl.experiment.inputs import population_inputs
from ttpfl.experiment.store import Store
from ttpfl.federation.checkpoints.checkpoint import rounds_done
from ttpfl.federation.checkpoints.progress import Advance
from ttpfl.federation.settings import RunSettings

Watch = Callable[[str, str], AbstractContextManager[Advance]]
"""Given what is being done and what is counted, a context with a function that is told how far it is."""


def unwatched(title: str, unit: str) -> AbstractContextManager[Advance]:
    """Nobody looks."""
    return nullcontext(lambda done, total, figures="", /: None)


class ExperimentContext:
    """Where stages are computed.

    Args:
        store: where they are kept.
        data_dir: where data is; see `ttpfl.data.load`.
        workers: processes; one per core if None.
        watch: shows what is being done.
    """

    def __init__(
        self,
        store: Store,
        data_dir: Path | None = None,
        workers: int | None = None,
        watch: Watch = unwatched,
    ) -> None:
        self.store, self.workers, self._watch = store, workers, watch
        self.stage = ""
        """Which of how many stages this is, for whoever watches."""
        self._data_dir = data_dir
        self._clients = lru_cache(maxsize=1)(self._federate)  # one population may fill the memory

    def watch(self, title: str, unit: str) -> AbstractContextManager[Advance]:
        """Whoever watches sees what is done now; the function is told how many of `unit` are done."""
        return self._watch(f"{self.stage}: {title}" if self.stage else title, unit)

    def clients(self, config: Config) -> Federated:
        """The population of a case, built and verified; the last one stays in memory."""
        return self._clients(json.dumps(population_inputs(config)))

    def _federate(self, said: str) -> Federated:
        inputs = json.loads(said)
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
        """A file below the data directory, or else where its name says; `key` of the recipe names it."""
        below = data_directory(self._data_dir) / name
        for place in (below, Path(name)):
            if place.is_file():
                return place
        raise DataMissingError(
            f"there is no file {below.absolute()}, which the recipe names as {key}: put it there "
            f"(--data-dir or {ENVIRONMENT} names another data directory), or use --set {key}=FILE"
        )

    def run_dir(self, settings: RunSettings, shared: Path, own: Path) -> Path:
        """Where rounds are run: runs that differ in their number of rounds alone share a folder.

        So a longer run goes on with a shorter one. If the shared one is already further than this one
        shall go, this one begins anew in its own folder.
        """
        return shared if rounds_done(shared) <= settings.rounds else own
