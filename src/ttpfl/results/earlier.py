"""`results.json` as written by `ttpfl compare` of version 0.1: rows, one per method and client."""

from collections.abc import Mapping
from typing import Any

from ttpfl.errors import ReportError
from ttpfl.results import runs
from ttpfl.results.schema import UNSEALED, Client, Results


def is_comparison(content: object) -> bool:
    """Whether this is the content of such a file, judging by its keys."""
    return isinstance(content, dict) and {"setting", "rows"} <= content.keys()


def as_run(content: Mapping[str, Any], place: str) -> Results:
    """Convert to a run with one case, which still has to be checked; `place` names the file in errors."""
    try:
        setting = content["setting"]
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
    except (AttributeError, KeyError, TypeError) as error:
        raise ReportError(f"{place} has rows that no version of `ttpfl compare` wrote: {error!r}") from None
