"""Stages that are computed once: each has a folder that is named by a hash of what it depends on."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttpfl._version import __version__
from ttpfl.experiment.provenance import versions
from ttpfl.files import written_in_one_step

DONE, INPUTS, ELAPSED, VERSIONS = "done.json", "inputs.json", "seconds.json", "versions.json"

Work = Callable[[Path], dict[str, Any]]
"""Does a stage's work in its folder, going on with what is there, and gives the result as plain data."""


@dataclass
class Store:
    """Where stages are kept, and which of them had to be computed.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.get("sum", {"of": [1, 2]}, lambda folder: {"is": 3})
    {'is': 3}
    >>> store.get("sum", {"of": [1, 2]}, lambda folder: {"is": "computed again"})
    {'is': 3}
    >>> store.computed
    ['sum']
    """

    root: Path
    computed: list[str] = field(default_factory=list)
    """The stages that were not there, in the order in which they were computed."""
    _asked: dict[Path, str] = field(default_factory=dict)
    _inside: list[float] = field(default_factory=lambda: [0.0])

    def folder(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        """The place of a stage with these inputs."""
        return self.root / stage / key(stage, inputs)[:20]

    def get(self, stage: str, inputs: Mapping[str, Any], work: Work) -> dict[str, Any]:
        """The result of a stage: what is kept, or what `work` gives now."""
        folder = self.folder(stage, inputs)
        if not (folder / DONE).exists():
            folder.mkdir(parents=True, exist_ok=True)
            self.computed.append(stage)
            write(folder / INPUTS, dict(inputs))
            self._compute(folder, work)
        self._asked[folder] = stage
        return read(folder / DONE)

    @property
    def seconds(self) -> dict[str, float]:
        """What the stages that were asked for took, whenever they were computed."""
        total: dict[str, float] = {}
        for folder, stage in self._asked.items():
            total[stage] = total.get(stage, 0.0) + read(folder / ELAPSED)["seconds"]
        return total

    @property
    def versions(self) -> dict[str, list[dict[str, Any]]]:
        """What the stages that were asked for were computed with; those of old stores may not say it."""
        found: dict[str, list[dict[str, Any]]] = {}
        for folder, stage in self._asked.items():
            known = found.setdefault(stage, [])
            if (folder / VERSIONS).exists() and (said := read(folder / VERSIONS)) not in known:
                known.append(said)
        return found

    def _compute(self, folder: Path, work: Work) -> None:
        """Time adds up over interruptions; that of stages which this one waits for is theirs."""
        before = read(folder / ELAPSED)["seconds"] if (folder / ELAPSED).exists() else 0.0
        begin = time.monotonic()
        self._inside.append(0.0)
        try:
            result = work(folder)
        finally:
            passed = time.monotonic() - begin
            own = passed - self._inside.pop()
            self._inside[-1] += passed
            write(folder / ELAPSED, {"seconds": before + own})
        write(folder / VERSIONS, versions())
        write(folder / DONE, result)


def key(stage: str, inputs: Mapping[str, Any]) -> str:
    """A hash of what a stage depends on; another version of the library computes everything anew."""
    said = [stage, __version__, inputs]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def write(path: Path, content: Any) -> None:
    """JSON in one step."""
    with written_in_one_step(path) as file:
        file.write(json.dumps(content).encode())


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote."""
    return dict(json.loads(path.read_bytes()))
