"""The toy example as runs of a recipe."""

from typing import cast

from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.toy import ALPHAS, toy
from ttpfl.results.runs import bare_entry, bare_run
from ttpfl.results.schema import METRICS, Client, Measured, Run, ToyExample

SAMPLES = 6000
LABELS = {"closed form": "closed_form", "sampled": "sampled"}


def toy_runs(recipe: Recipe, context: ExperimentContext) -> list[Run]:
    """One case for each rate, with the new client as the only client."""
    runs: list[Run] = []
    for seed in recipe.seeds:
        example = toy(ALPHAS, SAMPLES, seed)
        labels = [sum(counts) for counts in example["histograms"]["before"]["testing"].values()]
        runs += [_as_run(line, seed, labels) for line in example["alphas"]]
        runs[-1]["toy"] = cast(ToyExample, example)
    return runs


def _as_run(line: dict[str, float], seed: int, labels: list[int]) -> Run:
    client: Client = {
        "id": "new client", "domain": None, "corruption": None, "labels": labels, "size": SAMPLES
    }  # fmt: skip
    run, config = bare_run("toy", "", ["-1", "+1"], [client]), {"alpha": line["alpha"]}
    for label, key in LABELS.items():
        metrics = cast(Measured, {**{name: [None] for name in METRICS}, "accuracy": [line[key]]})
        run["entries"].append(bare_entry(label, "toy", config, metrics))
    return {**run, "case": f"alpha={line['alpha']:g}", "seed": seed, "config": config}
