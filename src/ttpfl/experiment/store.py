"""Stages that are computed once, each in a folder named by a hash of its inputs.

Results and files of a stage have checksums, and damaged stages are computed again. Stages of format version 1
have no checksums and are used without this check.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttpfl._version import __version__
from ttpfl.errors import DataError, LimitError
from ttpfl.experiment.provenance import versions
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import open_regular, read_json

log = logging.getLogger("ttpfl")

FORMAT, VERSION = "ttpfl.stage", 2
DONE, INPUTS, ELAPSED, MADE_WITH = "done.json", "inputs.json", "seconds.json", "made-with.json"
_SEAL = ("format", "version", CHECKSUM)  # what `write` adds to the content

Work = Callable[[Path], dict[str, Any]]
"""Computes or resumes a stage in its folder and returns the result as plain data."""


@dataclass(frozen=True)
class Finished:
    """A finished stage."""

    inputs: dict[str, Any]
    result: dict[str, Any]
    files: dict[str, Path]
    seconds: float
    versions: list[dict[str, Any]]
    """The versions that computed it."""


@dataclass
class Store:
    """Stores stages and records which ones were computed.

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
    """The computed stages, in order."""
    _used: dict[Path, str] = field(default_factory=dict)
    _verified: set[Path] = field(default_factory=set)  # folders whose files match their checksums
    _nested: list[float] = field(
        default_factory=lambda: [0.0]
    )  # seconds within stages that are being computed

    def folder(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        """The folder of a stage with these inputs."""
        return self.root / stage / key(stage, inputs)[:20]

    def get(
        self, stage: str, inputs: Mapping[str, Any], work: Work, files: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The result of a stage, stored or computed by `work`, which also creates `files`."""
        folder = self.folder(stage, inputs)
        done = self._stored(folder, files)
        if done is None:
            folder.mkdir(parents=True, exist_ok=True)
            self.computed.append(stage)
            write(folder / INPUTS, dict(inputs))
            self._compute(folder, work, files)
            done = read(folder / DONE)
        self._used[folder] = stage
        self._verified.add(folder)
        return dict(done["result"])

    def _stored(self, folder: Path, files: Sequence[str]) -> dict[str, Any] | None:
        """The stored result of a stage, if it and all files are intact."""
        done = stored(folder / DONE)
        if done is None:
            return None
        if "files" not in done:  # of an earlier version, unless its other files have checksums
            if CHECKSUM in (stored(folder / INPUTS) or {}):
                log.warning("%s is damaged: the stage is computed again", folder / DONE)
                return None
            warn_of_old_format(str(self.root))
        elif folder not in self._verified and done["files"] != _digests(folder, files):
            log.warning("a file in %s is damaged or missing: the stage is computed again", folder)
            return None
        return done

    def finished(self, stage: str, files: Sequence[str] = ()) -> Iterator[Finished]:
        """All finished stages of this name whose files are intact."""
        for folder in sorted((self.root / stage).glob("*")):
            done, inputs = self._stored(folder, files), stored(folder / INPUTS)
            if done is None or inputs is None:
                continue
            self._verified.add(folder)
            own = {name: value for name, value in inputs.items() if name not in _SEAL}
            paths = {name: folder / name for name in files}
            yield Finished(own, dict(done["result"]), paths, _elapsed(folder), _made_with(folder))

    def adopt(self, stage: str, finished: Finished) -> None:
        """Store a stage that was computed elsewhere; a DataError if the store has another one in its place.

        Later stages do not depend on the content of files, only on inputs, so they would mix two results.
        """
        folder = self.folder(stage, finished.inputs)
        if (done := self._stored(folder, list(finished.files))) is not None:
            if done["files"] != {name: file_digest(path) for name, path in finished.files.items()}:
                files = ", ".join(str(path) for path in finished.files.values())
                raise DataError(f"{folder} was computed here and differs from {files}: use another --out")
            return
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / INPUTS, finished.inputs)
        write(folder / MADE_WITH, {"versions": finished.versions})
        write(folder / ELAPSED, {"seconds": finished.seconds})
        for name, path in finished.files.items():
            shutil.copyfile(path, folder / name)
        write(folder / DONE, {"result": finished.result, "files": _digests(folder, list(finished.files))})

    @property
    def seconds(self) -> dict[str, float]:
        """The time of all used stages, even of stored ones."""
        total: dict[str, float] = {}
        for folder, stage in self._used.items():
            total[stage] = total.get(stage, 0.0) + _elapsed(folder)
        return total

    @property
    def versions(self) -> dict[str, list[dict[str, Any]]]:
        """The versions that computed the used stages; several if one was interrupted."""
        result: dict[str, list[dict[str, Any]]] = {}
        for folder, stage in self._used.items():
            listed = result.setdefault(stage, [])
            listed += [entry for entry in _made_with(folder) if entry not in listed]
        return result

    def _compute(self, folder: Path, work: Work, files: Sequence[str]) -> None:
        """Add up the time over interruptions, without that of nested stages."""
        before, start = _elapsed(folder), time.monotonic()
        if (current := versions()) not in (earlier := _made_with(folder)):
            write(folder / MADE_WITH, {"versions": [*earlier, current]})
        self._nested.append(0.0)
        try:
            result = work(folder)
        finally:
            elapsed = time.monotonic() - start
            seconds = before + elapsed - self._nested.pop()
            self._nested[-1] += elapsed
            write(folder / ELAPSED, {"seconds": seconds})
        write(folder / DONE, {"result": result, "files": _digests(folder, files)})


def _elapsed(folder: Path) -> float:
    seconds = (stored(folder / ELAPSED) or {}).get("seconds", 0)
    return float(seconds) if type(seconds) in (int, float) else 0.0


def _made_with(folder: Path) -> list[dict[str, Any]]:
    entries = (stored(folder / MADE_WITH) or {}).get("versions")
    return entries if isinstance(entries, list) else []


def _digests(folder: Path, files: Sequence[str]) -> dict[str, str | None]:
    """SHA-256 of a stage's files; None for missing ones."""
    digests: dict[str, str | None] = {}
    for name in files:
        try:
            digests[name] = file_digest(folder / name)
        except OSError:
            digests[name] = None
    return digests


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key(stage: str, inputs: Mapping[str, Any]) -> str:
    """A hash of a stage's inputs and the library's version."""
    return hashlib.sha256(json.dumps([stage, __version__, inputs], sort_keys=True).encode()).hexdigest()


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with a checksum atomically."""
    with written_in_one_step(path) as file:
        file.write(json.dumps(sealed({"format": FORMAT, "version": VERSION, **content})).encode())


def read(path: Path) -> dict[str, Any]:
    """Read a file of `write` or of format version 1; a ValueError if it is damaged."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("it is not a table")
    if "format" not in content and CHECKSUM not in content:
        return {"result": content} if path.name == DONE else content
    if not is_sound(content) or (content["format"], content["version"]) != (FORMAT, VERSION):
        raise ValueError("its checksum or its format is wrong")
    if path.name == DONE and not {"result", "files"} <= content.keys():
        raise ValueError("it has no result")
    return content


def stored(path: Path) -> dict[str, Any] | None:
    """Read a file of `write`; None if it is missing or damaged, since it can be computed again.

    A LimitError is not damage: the file is valid under a higher limit.
    """
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except LimitError:
        raise
    except (OSError, ValueError, KeyError) as error:
        log.warning("%s is damaged (%s): it is ignored", path, error)
        return None
