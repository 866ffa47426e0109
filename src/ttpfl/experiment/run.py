"""Running a recipe: all cases and seeds through all stages, to one file of results."""

from pathlib import Path
from typing import Any

from ttpfl.experiment import stages
from ttpfl.experiment.entries import chosen
from ttpfl.experiment.provenance import machine, versions
from ttpfl.experiment.recipe import COMPARISON, TOY, Entry, Recipe
from ttpfl.experiment.samples import samples
from ttpfl.experiment.store import write
from ttpfl.experiment.toy_runs import toy_runs
from ttpfl.experiment.workshop import Workshop

FORMAT = 1
FIGURES = ("accuracy", "loss", "ece", "entropy")
COSTS = ("time", "extra_bytes")

Results = dict[str, Any]


def run(recipe: Recipe, shop: Workshop, out: Path, command: str = "") -> Results:
    """Compute what is not there yet, and write `results.json` and `samples.json` into `out`.

    Interrupted at any point, it goes on there when it is called again.
    """
    out.mkdir(parents=True, exist_ok=True)
    runs = KINDS[recipe.kind](recipe, shop)
    results = {
        "format": FORMAT,
        "recipe": {
            "name": recipe.name,
            "title": recipe.title,
            "question": recipe.tree.get("question", ""),
            "hash": recipe.hash,
            "preset": recipe.preset,
            "set": dict(recipe.changes),
            "command": command,
        },
        "made": {
            **versions(),
            "machine": machine(),
            "seconds": _rounded(shop.store.seconds),
            "stages": shop.store.versions,
        },
        "paper": recipe.tree.get("paper", {}),
        "runs": runs,
    }
    write(out / "results.json", results)
    if shown := samples(recipe, shop):
        write(out / "samples.json", shown)
    else:
        (out / "samples.json").unlink(missing_ok=True)  # of methods that were compared before
    return results


def compared(recipe: Recipe, shop: Workshop) -> list[Results]:
    """Methods at the target clients of every case and seed."""
    for case in recipe.cases:  # before populations are built, which takes long
        stages.weights_file(shop, recipe.config(case, recipe.seeds[0]))
    return [run_case(recipe, shop, case, seed) for case in recipe.cases for seed in recipe.seeds]


def run_case(recipe: Recipe, shop: Workshop, case: str, seed: int) -> Results:
    """One case and seed: the clients, the model, and every entry at every target client."""
    config = recipe.config(case, seed)
    return {
        "case": case,
        "seed": seed,
        "config": config.flat(),
        **stages.population(shop, config),
        "training": stages.trained(shop, config)["history"],
        "entries": [_entry(recipe, shop, case, seed, entry) for entry in recipe.entries],
    }


def _entry(recipe: Recipe, shop: Workshop, case: str, seed: int, entry: Entry) -> Results:
    found = chosen(recipe, shop, case, seed, entry)
    rows = stages.judged(shop, recipe.config(case, seed), found)
    return {
        "label": entry.label,
        "method": entry.method,
        "config": rows[0]["config"],
        "tuning": found.tuning,
        "rates": None if found.rates is None else stages.learned(shop, found.rates),
        **{name: [row[name] for row in rows] for name in FIGURES},
        **{name: [row["cost"][name] for row in rows] for name in COSTS},
    }


KINDS = {COMPARISON: compared, TOY: toy_runs}


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {stage: round(value, 1) for stage, value in seconds.items()}
