"""`results.json` as `ttpfl compare` wrote it before it wrote runs: rows, one per method and client."""

from collections.abc import Mapping
from typing import Any, TypedDict

from ttpfl.results.schema import TITLE, UNSEALED, Entry, Results, Run, Tuning, columns, single_run
from ttpfl.results.shapes import check


class _Setting(TypedDict):
    clients: list[str]
    images: str
    batch_size: int
    order: str
    seed: int


class _Row(TypedDict):
    method: str
    config: dict[str, Any]
    client: str
    cost: dict[str, Any]


class _Comparison(TypedDict):
    library: str
    setting: _Setting
    tuning: dict[str, Tuning]
    rows: list[_Row]


def is_comparison(content: object) -> bool:
    """Whether this is such a file, as far as its keys tell."""
    return isinstance(content, dict) and {"setting", "rows"} <= content.keys()


def as_run(content: Mapping[str, Any], place: str) -> Results:
    """The same figures as those of a run with one case; `place` is how errors call the file."""
    check(content, _Comparison, place)
    setting, by_method = content["setting"], dict[str, list[_Row]]()
    for row in content["rows"]:
        by_method.setdefault(row["method"], []).append(row)
    entries: list[Entry] = [
        {
            "label": method,
            "method": method,
            "config": rows[0]["config"],
            "tuning": content["tuning"].get(method),
            "rates": None,
            **columns(rows),
        }
        for method, rows in by_method.items()
    ]
    ids = setting["clients"]
    run: Run = {
        "case": "",
        "seed": setting["seed"],
        "config": {f"test.{key}": setting[key] for key in ("batch_size", "order", "seed")},
        "population": {
            "name": "not recorded",
            "digest": setting["images"],
            "classes": [],
            "source_clients": 0,
            "target_clients": len(ids),
            "checks": [],
        },
        "clients": [
            {"id": name, "domain": None, "corruption": None, "labels": [], "size": 0} for name in ids
        ],
        "training": [],
        "entries": entries,
        "setting": setting,
    }
    return {**single_run(run, TITLE, {"ttpfl": content["library"]}), "format": UNSEALED}
