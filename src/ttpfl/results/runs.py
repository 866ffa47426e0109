"""Runs and their parts, made of what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ttpfl.results.schema import FORMAT, METRICS, Client, Made, MethodResult, Metrics, Recipe, Results, Run

TITLE = "Comparison of test-time methods"
"""Of results that no recipe asked for."""


def columns(rows: Sequence[Mapping[str, Any]]) -> Metrics:
    """The figures of a method from its rows, one per client, which have their costs in a table of their own.

    >>> columns([{"accuracy": 0.5, "cost": {"time": 2.0}}])["time"]
    [2.0]
    """
    flat = [{**row, **row["cost"]} for row in rows]
    return cast(Metrics, {name: [row.get(name) for row in flat] for name in METRICS})


def entry_of(run: Run, label: str) -> MethodResult | None:
    """The run's entry with this label."""
    return next((entry for entry in run["entries"] if entry["label"] == label), None)


def stream_config(setting: Mapping[str, Any]) -> dict[str, Any]:
    """How streams came, with the names that recipes have for it."""
    return {f"test.{key}": setting[key] for key in ("batch_size", "order", "seed")}


def bare_run(population: str, digest: str, classes: Sequence[str], clients: list[Client]) -> Run:
    """A run of the only case, of which no more is known; entries are still to come."""
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


def bare_entry(label: str, method: str, config: dict[str, Any], figures: Metrics) -> MethodResult:
    """An entry that was not tuned and has no rates."""
    return {"label": label, "method": method, "config": config, "tuning": None, "rates": None, **figures}


def single_run(run: Run, title: str, made: Made) -> Results:
    """The results of a comparison that no recipe asked for: one case, one seed."""
    recipe: Recipe = {"name": "compare", "title": title, "question": ""}
    return {"format": FORMAT, "recipe": recipe, "made": made, "paper": {}, "runs": [run]}
