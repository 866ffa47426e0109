"""Comparisons of methods at the same clients."""

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
    """A run in which every method has a column of one number per client for each metric."""

    run: Run

    @property
    def methods(self) -> list[str]:
        """The labels of the methods, in order."""
        return [entry["label"] for entry in self.run["entries"]]

    @property
    def setting(self) -> dict[str, Any]:
        """Hashes of model and images, and the settings of the streams."""
        return self.run.get("setting", {})

    @property
    def headline(self) -> str:
        """The main metric: a key of `HEADLINES`."""
        return self.run.get("headline", "accuracy")

    def of(self, method: str, figure: str | None = None) -> list[float]:
        """A metric of a method at each client, in the order of clients; NaN where unknown.

        By default, it is the main metric of the run.
        """
        entry = entry_of(self.run, method)
        if entry is None:
            return []
        columns = cast(dict[str, Sequence[float | None]], entry)
        column = columns.get(figure or self.headline, [None] * len(entry["accuracy"]))
        return [math.nan if value is None else value for value in column]

    def save(
        self, path: str | PathLike[str], title: str = TITLE, made: Mapping[str, Any] | None = None
    ) -> Results:
        """Write a `results.json` with one case, which `ttpfl report` reads, and return its content.

        Args:
            path: The file.
            title: The title in tables and reports.
            made: Versions and machine; only the library's version if None.
        """
        made = {"ttpfl": __version__} if made is None else made
        return cast(Results, write(Path(path), single_run(self.run, title, cast(Made, made))))
