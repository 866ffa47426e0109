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

DONE, INPUTS, ELAPSED, MADE_WITH = "done.json", "inputs.json", "seconds.json", "made-with.json"

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
        result = kept(folder / DONE)
        if result is None:
            folder.mkdir(parents=True, exist_ok=True)
            self.computed.append(stage)
            write(folder / INPUTS, dict(inputs))
            self._compute(folder, work)
            result = read(folder / DONE)
        self._asked[folder] = stage
        return result

    @property
    def seconds(self) -> dict[str, float]:
        """What the stages that were asked for took, whenever they were computed."""
        total: dict[str, float] = {}
        for folder, stage in self._asked.items():
            total[stage] = total.get(stage, 0.0) + _elapsed(folder)
        return total

    @property
    def versions(self) -> dict[str, list[dict[str, Any]]]:
        """What the stages that were asked for were computed with; several, if one was interrupted."""
        found: dict[str, list[dict[str, Any]]] = {}
        for folder, stage in self._asked.items():
            known = found.setdefault(stage, [])
            known += [said for said in _made_with(folder) if said not in known]
        return found

    def _compute(self, folder: Path, work: Work) -> None:
        """Time adds up over interruptions; that of stages which this one waits for is theirs."""
        before, begin = _elapsed(folder), time.monotonic()
        if (now := versions()) not in (known := _made_with(folder)):
            write(folder / MADE_WITH, {"versions": [*known, now]})
        self._inside.append(0.0)
        try:
            result = work(folder)
        finally:
            passed = time.monotonic() - begin
            own = passed - self._inside.pop()
            self._inside[-1] += passed
            write(folder / ELAPSED, {"seconds": before + own})
        write(folder / DONE, result)


def _elapsed(folder: Path) -> float:
    return float((kept(folder / ELAPSED) or {}).get("seconds", 0))


def _made_with(folder: Path) -> list[dict[str, Any]]:
    return list((kept(folder / MADE_WITH) or {}).get("versions", []))


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


def kept(path: Path) -> dict[str, Any] | None:
    """What `write` wrote, or None if it is not there, or damaged: it can be computed again."""
    try:
        return read(path)
    except (OSError, ValueError, TypeError):
        return None
