"""`results.json` as `ttpfl compare` wrote it before it wrote runs: rows, one per method and client."""

from collections.abc import Mapping
from typing import Any

from ttpfl.errors import ReportError
from ttpfl.results import runs
from ttpfl.results.schema import UNSEALED, Client, Results


def is_comparison(content: object) -> bool:
    """Whether this is such a file, as far as its keys tell."""
    return isinstance(content, dict) and {"setting", "rows"} <= content.keys()


def as_run(content: Mapping[str, Any], place: str) -> Results:
    """The same figures as those of a run with one case; `place` is how errors call the file.

    What is not as it should be then is found where results are checked.
    """
    try:
        return _as_run(content, content["setting"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ReportError(f"{place} has rows that no version of `ttpfl compare` wrote: {error!r}") from None


def _as_run(content: Mapping[str, Any], setting: dict[str, Any]) -> Results:
    clients: list[Client] = [
        {"id": name, "domain": None, "corruption": None, "labels": [], "size": 0}
        for name in setting["clients"]
    ]
    run = runs.bare_run("not recorded", setting["images"], (), clients)
    run |= {"seed": setting["seed"], "config": runs.stream_config(setting), "setting": setting}
    for method in dict.fromkeys(row["method"] for row in content["rows"]):
        rows = [row for row in content["rows"] if row["method"] == method]
        entry = runs.bare_entry(method, method, rows[0]["config"], runs.columns(rows))
        run["entries"].append({**entry, "tuning": content["tuning"].get(method)})
    return {**runs.single_run(run, runs.TITLE, {"ttpfl": content["library"]}), "format": UNSEALED}
