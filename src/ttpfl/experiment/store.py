"""Stages that are computed once: each has a folder that is named by a hash of what it depends on.

What is kept carries a checksum, and so does every file of a stage: what is damaged is computed again. Stages
of format version 1 have none, and are taken as they are.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttpfl._version import __version__
from ttpfl.errors import LimitError
from ttpfl.experiment.provenance import versions
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import open_regular, read_json

log = logging.getLogger("ttpfl")

FORMAT, VERSION = "ttpfl.stage", 2
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
    _verified: set[Path] = field(default_factory=set)
    """Stages whose files were compared with their checksums."""
    _inside: list[float] = field(default_factory=lambda: [0.0])

    def folder(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        """The place of a stage with these inputs."""
        return self.root / stage / key(stage, inputs)[:20]

    def get(
        self, stage: str, inputs: Mapping[str, Any], work: Work, files: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The result of a stage: what is kept, or what `work` gives now, which leaves `files` behind."""
        folder = self.folder(stage, inputs)
        done = self._kept(folder, files)
        if done is None:
            folder.mkdir(parents=True, exist_ok=True)
            self.computed.append(stage)
            write(folder / INPUTS, dict(inputs))
            self._compute(folder, work, files)
            done = read(folder / DONE)
        self._asked[folder] = stage
        self._verified.add(folder)
        return dict(done["result"])

    def _kept(self, folder: Path, files: Sequence[str]) -> dict[str, Any] | None:
        """What an earlier run left of a stage, if all of it is sound."""
        done = kept(folder / DONE)
        if done is None:
            return None
        if "files" not in done:  # of an earlier version, unless its other files are not
            if CHECKSUM in (kept(folder / INPUTS) or {}):
                log.warning("%s is damaged, and is not used", folder / DONE)
                return None
            warn_of_old_format(str(self.root))
        elif folder not in self._verified and done["files"] != _digests(folder, files):
            log.warning("a file of the stage in %s is damaged or missing: it is computed again", folder)
            return None
        return done

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

    def _compute(self, folder: Path, work: Work, files: Sequence[str]) -> None:
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
        write(folder / DONE, {"result": result, "files": _digests(folder, files)})


def _elapsed(folder: Path) -> float:
    seconds = (kept(folder / ELAPSED) or {}).get("seconds", 0)
    return float(seconds) if type(seconds) in (int, float) else 0.0


def _made_with(folder: Path) -> list[dict[str, Any]]:
    found = (kept(folder / MADE_WITH) or {}).get("versions")
    return found if isinstance(found, list) else []


def _digests(folder: Path, files: Sequence[str]) -> dict[str, str | None]:
    """SHA-256 of a stage's files; None for one that is not there."""
    found: dict[str, str | None] = {}
    for name in files:
        try:
            with open_regular(folder / name) as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            found[name] = None
    return found


def key(stage: str, inputs: Mapping[str, Any]) -> str:
    """A hash of what a stage depends on; another version of the library computes everything anew."""
    said = [stage, __version__, inputs]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def write(path: Path, content: Mapping[str, Any]) -> None:
    """JSON with a checksum, in one step."""
    with written_in_one_step(path) as file:
        file.write(json.dumps(sealed({"format": FORMAT, "version": VERSION, **content})).encode())


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote, now or in format version 1; a ValueError if it is damaged."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError("it is no table")
    if "format" not in found and CHECKSUM not in found:
        return {"result": found} if path.name == DONE else found
    if not is_sound(found) or (found["format"], found["version"]) != (FORMAT, VERSION):
        raise ValueError("its checksum or its format is wrong")
    if path.name == DONE and not {"result", "files"} <= found.keys():
        raise ValueError("it has no result")
    return found


def kept(path: Path) -> dict[str, Any] | None:
    """What `write` wrote, or None if it is not there, or damaged: it can be computed again.

    A LimitError is no damage: a limit can be set differently, and then the file is as good as before.
    """
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except LimitError:
        raise
    except (OSError, ValueError, KeyError) as error:
        log.warning("%s is damaged (%s), and is not used", path, error)
        return None
