"""Building runs and their parts from measurements."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ttpfl.results.schema import (
    FORMAT,
    GUARDED,
    METRICS,
    Client,
    Made,
    Measured,
    MethodResult,
    Recipe,
    Results,
    Run,
)

TITLE = "Comparison of test-time methods"
"""The title of results without a recipe."""


def columns(rows: Sequence[Mapping[str, Any]]) -> Measured:
    """The metrics of a method as columns, from a row per client with a nested `cost`.

    >>> columns([{"accuracy": 0.5, "cost": {"time": 2.0}}])["time"]
    [2.0]
    """
    flat = [{**row, **row["cost"]} for row in rows]
    measured: dict[str, Any] = {name: [row.get(name) for row in flat] for name in METRICS}
    if rows and all("guard" in row for row in rows):
        measured["guard"] = {name: [row["guard"][name] for row in rows] for name in GUARDED}
    return cast(Measured, measured)


def entry_of(run: Run, label: str) -> MethodResult | None:
    """The entry with this label."""
    return next((entry for entry in run["entries"] if entry["label"] == label), None)


def stream_config(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of streams under their names in recipes."""
    return {f"test.{key}": setting[key] for key in ("batch_size", "order", "seed")}


def bare_run(population: str, digest: str, classes: Sequence[str], clients: list[Client]) -> Run:
    """A run with a single unnamed case and no entries yet."""
    return {
        "case": "",
        "seed": 0,
        "config": {},
        "population": {
            "name": population,
            "digest": digest,
            "classes": list(classes),
            "source_clients": 0,
            "target_clients": len(clients),
            "checks": [],
        },
        "clients": clients,
        "training": [],
        "entries": [],
    }


def bare_entry(label: str, method: str, config: dict[str, Any], figures: Measured) -> MethodResult:
    """An entry without tuning and rates."""
    return {"label": label, "method": method, "config": config, "tuning": None, "rates": None, **figures}


def single_run(run: Run, title: str, made: Made) -> Results:
    """Results of a comparison without a recipe: one case, one seed."""
    recipe: Recipe = {"name": "compare", "title": title, "question": ""}
    return {"format": FORMAT, "recipe": recipe, "made": made, "paper": {}, "runs": [run]}
