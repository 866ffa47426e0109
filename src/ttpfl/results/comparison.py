"""Methods at the same clients, column by column."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from ttpfl._version import __version__
from ttpfl.results.files import write
from ttpfl.results.runs import TITLE, entry_of, single_run
from ttpfl.results.schema import Made, Results, Run


@dataclass(frozen=True)
class Comparison:
    """A run, in which every method has one number per client for each figure."""

    run: Run

    @property
    def methods(self) -> list[str]:
        """The labels of the methods, in the order in which they were given."""
        return [entry["label"] for entry in self.run["entries"]]

    @property
    def setting(self) -> dict[str, Any]:
        """What the figures rest on: hashes of the model and of the images, and how streams came."""
        return self.run.get("setting", {})

    def of(self, method: str, figure: str = "accuracy") -> list[float]:
        """A figure of a method at each client, clients always in the same order; NaN where it is unknown."""
        entry = entry_of(self.run, method)
        column = [] if entry is None else cast(dict[str, Sequence[float | None]], entry)[figure]
        return [math.nan if value is None else value for value in column]

    def save(
        self, path: str | PathLike[str], title: str = TITLE, made: Mapping[str, Any] | None = None
    ) -> Results:
        """Write the `results.json` of a run with one case, which `ttpfl report` reads; return its content.

        Args:
            path: the file.
            title: what tables and reports call it.
            made: versions and the machine; the library's version if None.
        """
        how = cast(Made, {"ttpfl": __version__} if made is None else made)
        return cast(Results, write(Path(path), single_run(self.run, title, how)))
