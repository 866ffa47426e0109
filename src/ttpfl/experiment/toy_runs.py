"""The toy example of negative rates in the form of other results."""

from typing import Any

from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.workshop import Workshop
from ttpfl.toy import ALPHAS, toy

LABELS = {"closed form": "closed_form", "sampled": "sampled"}


def toy_runs(recipe: Recipe, shop: Workshop) -> list[dict[str, Any]]:
    """One case for each rate; the new client is the only one."""
    found: list[dict[str, Any]] = []
    for seed in recipe.seeds:
        example = toy(ALPHAS, seed=seed)
        for line in example["alphas"]:
            found.append({"case": f"alpha={line['alpha']:g}", "seed": seed, **_as_run(line)})
        found[-1]["toy"] = example
    return found


def _as_run(line: dict[str, float]) -> dict[str, Any]:
    entries = [
        {"label": label, "method": "toy", "config": {"alpha": line["alpha"]}, "accuracy": [line[key]]}
        for label, key in LABELS.items()
    ]
    nothing: dict[str, Any] = {"tuning": None, "rates": None, "loss": [], "ece": [], "entropy": []}
    clients: list[dict[str, Any]] = [
        {"id": "new client", "domain": "", "corruption": None, "labels": [], "size": 6000}
    ]
    return {
        "config": {"alpha": line["alpha"]},
        "population": {"name": "toy", "classes": ["-1", "+1"], "checks": [], "digest": ""},
        "clients": clients,
        "training": [],
        "entries": [{**entry, **nothing, "time": [], "extra_bytes": []} for entry in entries],
    }
