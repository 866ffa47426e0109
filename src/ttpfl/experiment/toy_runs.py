"""The toy example of negative rates in the form of other results."""

from typing import Any

from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.workshop import Workshop
from ttpfl.results.schema import FIGURES
from ttpfl.toy import ALPHAS, toy

SAMPLES = 6000
LABELS = {"closed form": "closed_form", "sampled": "sampled"}


def toy_runs(recipe: Recipe, shop: Workshop) -> list[dict[str, Any]]:
    """One case for each rate; the new client is the only one."""
    found: list[dict[str, Any]] = []
    for seed in recipe.seeds:
        example = toy(ALPHAS, SAMPLES, seed)
        labels = [sum(counts) for counts in example["histograms"]["before"]["testing"].values()]
        for line in example["alphas"]:
            found.append({"case": f"alpha={line['alpha']:g}", "seed": seed, **_as_run(line, labels)})
        found[-1]["toy"] = example
    return found


def _as_run(line: dict[str, float], labels: list[int]) -> dict[str, Any]:
    unknown = {name: [None] for name in FIGURES}
    client = {"id": "new client", "domain": None, "corruption": None, "labels": labels, "size": SAMPLES}
    return {
        "config": {"alpha": line["alpha"]},
        "population": {
            "name": "toy",
            "digest": "",
            "classes": ["-1", "+1"],
            "source_clients": 0,
            "target_clients": 1,
            "checks": [],
        },
        "clients": [client],
        "training": [],
        "entries": [
            {
                "label": label,
                "method": "toy",
                "config": {"alpha": line["alpha"]},
                "tuning": None,
                "rates": None,
                **unknown,
                "accuracy": [line[key]],
            }
            for label, key in LABELS.items()
        ],
    }
