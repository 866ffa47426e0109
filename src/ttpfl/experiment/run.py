"""Running a recipe: all cases and seeds through all stages, to one file of results."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

from ttpfl.errors import BatchError, FederationError, MethodError, RatesError
from ttpfl.experiment import stages
from ttpfl.experiment.config import Config, located
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.entries import chosen, rates_of, tunes
from ttpfl.experiment.provenance import machine, versions
from ttpfl.experiment.recipe import COMPARISON, TOY, MethodSpec, Recipe
from ttpfl.experiment.samples import samples
from ttpfl.experiment.stages import Chosen
from ttpfl.experiment.toy_runs import toy_runs
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.results.files import RESULTS, SAMPLES, write
from ttpfl.results.schema import FORMAT, LearnedRates, MethodResult, Results, Run, Tuning
from ttpfl.util.parallel import Progress

log = logging.getLogger("ttpfl")

CLIENTS, TRAINING, LEARNING, TUNING, COMPARING = "clients", "training", "learning", "tuning", "comparing"

Begin = Callable[[str], None]
"""Told which of a run's stages comes now."""


def run(recipe: Recipe, shop: ExperimentContext, out: Path, command: str = "") -> Results:
    """Compute what is not there yet, and write `results.json` and `samples.json` into `out`.

    Interrupted at any point, it goes on there when it is called again.
    """
    out.mkdir(parents=True, exist_ok=True)
    runs, shown = KINDS[recipe.kind](recipe, shop), samples(recipe, shop)
    results = {
        "format": FORMAT,
        "recipe": {
            "name": recipe.name,
            "title": recipe.title,
            "question": recipe.tree.get("question", ""),
            "hash": recipe.hash,
            "content": recipe.tree,
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
    if shown:
        write(out / SAMPLES, shown)
    else:
        (out / SAMPLES).unlink(missing_ok=True)  # of methods that were compared before
    return cast(Results, write(out / RESULTS, results))


def compared(recipe: Recipe, shop: ExperimentContext) -> list[Run]:
    """Methods at the target clients of every case and seed.

    A line that fails does not keep the others from being computed; but results without it would look as if
    nobody had asked for it, so that there are none until it works, or is left out.
    """
    for case in recipe.cases:  # before populations are built, which takes long
        stages.weights_file(shop, recipe.config(case, recipe.seeds[0]))
    runs, failures = list[Run](), list[str]()
    for number, (case, seed) in enumerate(product(recipe.cases, recipe.seeds)):
        with located(_place(case, seed)):
            begin = partial(_begin, recipe, shop, number, _place(case, seed))
            runs.append(run_case(recipe, shop, case, seed, failures, begin))
    if failures:
        raise MethodError(
            f"{'; '.join(failures)}. All other lines are computed and kept: change those that fail, or leave "
            "them out (methods, entries), and run again"
        )
    return runs


def run_case(
    recipe: Recipe, shop: ExperimentContext, case: str, seed: int, failures: list[str], begin: Begin
) -> Run:
    """One case and seed: the clients, the model, and every entry at every target client."""
    config = recipe.config(case, seed)
    begin(CLIENTS)
    people = stages.population(shop, config)
    if recipe.learns:
        sources = shop.clients(config).population.source
        ClientPool(sources).cohort(config.learn.cohort)  # an error now, and not after training
    begin(TRAINING)
    return {
        "case": case,
        "seed": seed,
        "config": config.flat(),
        "population": people["population"],
        "clients": people["clients"],
        "training": stages.trained(shop, config)["history"],
        "entries": _entries(recipe, shop, case, seed, failures, begin),
    }


def _entries(
    recipe: Recipe, shop: ExperimentContext, case: str, seed: int, failures: list[str], begin: Begin
) -> list[MethodResult]:
    """Every entry through all stages; one that fails is noted, and goes no further."""

    def trying(entry: MethodSpec) -> AbstractContextManager[None]:
        return _put_off(failures, entry.label, _place(case, seed))

    begin(LEARNING)
    able, ready, entries = list[MethodSpec](), list[tuple[MethodSpec, Chosen]](), list[MethodResult]()
    for entry in recipe.entries:
        with trying(entry):
            if (rates := rates_of(recipe, case, seed, entry)) is not None:
                stages.learned(shop, rates)
            able.append(entry)
    begin(TUNING)
    for entry in able:
        with trying(entry):
            ready.append((entry, chosen(recipe, shop, case, seed, entry)))
    begin(COMPARING)
    with shop.watch("comparing methods", "evaluation") as advance:
        for number, (entry, found) in enumerate(ready):

            def progress(done: int, of: int, number: int = number, label: str = entry.label) -> None:
                advance(number * of + done, len(ready) * of, label)

            with trying(entry):
                entries.append(_compared(shop, recipe.config(case, seed), entry, found, progress))
    return entries


def _begin(recipe: Recipe, shop: ExperimentContext, run: int, place: str, stage: str) -> None:
    """Tell whoever watches which stage of how many this is, over all cases and seeds."""
    planned = [CLIENTS, TRAINING, *[LEARNING] * recipe.learns, *[TUNING] * tunes(recipe), COMPARING]
    runs = len(recipe.cases) * len(recipe.seeds)
    if stage in planned:
        number = run * len(planned) + planned.index(stage) + 1
        shop.stage = f"stage {number} of {runs * len(planned)}" + (f" ({place})" if runs > 1 else "")


def _place(case: str, seed: int) -> str:
    return f"case {case}, seed {seed}" if case else f"seed {seed}"


@contextmanager
def _put_off(failures: list[str], label: str, place: str) -> Iterator[None]:
    """What a method or its rate learning cannot do is noted; the error itself would keep a population."""
    try:
        with located(label):
            yield
    except (BatchError, MethodError, FederationError, RatesError) as error:
        failures.append(f"{label} ({place}): {error}")
        log.warning("%s (%s): %s; going on with the other lines", label, place, error)


def _compared(
    shop: ExperimentContext, config: Config, entry: MethodSpec, found: Chosen, progress: Progress
) -> MethodResult:
    return {
        "label": entry.label,
        "method": entry.method,
        "config": asdict(found.method),
        "tuning": cast(Tuning | None, found.tuning),
        "rates": None if found.rates is None else cast(LearnedRates, stages.learned(shop, found.rates)),
        **stages.judged(shop, config, found, progress),
    }


KINDS = {COMPARISON: compared, TOY: toy_runs}


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {stage: round(value, 1) for stage, value in seconds.items()}
