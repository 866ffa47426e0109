"""Running a recipe: all cases and seeds through all stages, to one file of results."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
from ttpfl.federation.checkpoints.progress import Advance
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.results.files import RESULTS, SAMPLES, write
from ttpfl.results.schema import FORMAT, LearnedRates, MethodResult, Results, Run, Tuning
from ttpfl.util.parallel import Progress

log = logging.getLogger("ttpfl")

CLIENTS, TRAINING, LEARNING, TUNING, COMPARING = "clients", "training", "learning", "tuning", "comparing"


def run(recipe: Recipe, context: ExperimentContext, out: Path, command: str = "") -> Results:
    """Compute missing stages and write `results.json` and `samples.json` into `out`.

    If interrupted, call it again to resume.
    """
    out.mkdir(parents=True, exist_ok=True)
    runs, images = KINDS[recipe.kind](recipe, context), samples(recipe, context)
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
            "seconds": {stage: round(value, 1) for stage, value in context.store.seconds.items()},
            "stages": context.store.versions,
        },
        "paper": recipe.tree.get("paper", {}),
        "runs": runs,
    }
    if images:
        write(out / SAMPLES, images)
    else:
        (out / SAMPLES).unlink(missing_ok=True)  # of an earlier choice of methods
    return cast(Results, write(out / RESULTS, results))


def compared(recipe: Recipe, context: ExperimentContext) -> list[Run]:
    """Methods at the target clients of every case and seed.

    If an entry fails, all others are still computed. Then an error is raised, since results without that
    entry would be incomplete.
    """
    for case, seed in product(recipe.cases, recipe.seeds):  # before building populations, which takes long
        stages.check_start(context, recipe.config(case, seed))
    runs, failures = list[Run](), list[str]()
    for number, (case, seed) in enumerate(product(recipe.cases, recipe.seeds)):
        case_run = _CaseRun(recipe, context, case, seed, number, failures)
        with located(case_run.place):
            runs.append(case_run.compute())
    if failures:
        raise MethodError(
            f"{'; '.join(failures)}. All other entries are computed and stored: change or remove those that "
            "fail (methods, entries), and run again"
        )
    return runs


@dataclass(frozen=True)
class _CaseRun:
    """One case and seed."""

    recipe: Recipe
    context: ExperimentContext
    case: str
    seed: int
    number: int  # among all runs
    failures: list[str]  # of all runs

    @property
    def place(self) -> str:
        return f"case {self.case}, seed {self.seed}" if self.case else f"seed {self.seed}"

    def compute(self) -> Run:
        """The clients, the model, and every entry at every target client."""
        context, config = self.context, self.recipe.config(self.case, self.seed)
        self._begin(CLIENTS)
        population = stages.population(context, config)
        if self.recipe.learns:
            sources = context.clients(config).population.source
            ClientPool(sources).cohort(config.learn.cohort)  # raises an error before training
        self._begin(TRAINING)
        result: Run = {
            "case": self.case,
            "seed": self.seed,
            "config": config.flat(),
            "population": population["population"],
            "clients": population["clients"],
            "training": stages.trained(context, config)["history"],
            "entries": [],
        }
        ready = self._ready()
        self._begin(COMPARING)
        with context.watch("comparing methods", "evaluation") as advance:
            result["entries"], *others = self._compared(config, ready, advance)
        if self.recipe.orders:
            result["orders"] = dict(zip(self.recipe.orders, others, strict=True))
        if "headline" in self.recipe.tree:
            result["headline"] = self.recipe.headline
        return result

    def _ready(self) -> list[tuple[MethodSpec, Chosen]]:
        """Every entry through the stages before the comparison, up to the first that fails."""
        able, ready = list[MethodSpec](), list[tuple[MethodSpec, Chosen]]()
        self._begin(LEARNING)
        for entry in self.recipe.entries:
            with self._attempt(entry):
                if (rates := rates_of(self.recipe, self.case, self.seed, entry)) is not None:
                    stages.learned(self.context, rates)
                able.append(entry)
        self._begin(TUNING)
        for entry in able:
            with self._attempt(entry):
                ready.append((entry, chosen(self.recipe, self.context, self.case, self.seed, entry)))
        return ready

    def _compared(
        self, config: Config, ready: Sequence[tuple[MethodSpec, Chosen]], advance: Advance
    ) -> list[list[MethodResult]]:
        """All entries in the configured order of streams, then in the recipe's further orders."""
        orders = [config.test.order, *self.recipe.orders]
        results: list[list[MethodResult]] = [[] for _ in orders]
        for number, (place, (entry, choice)) in enumerate(product(range(len(orders)), ready)):

            def progress(done: int, total: int, number: int = number, label: str = entry.label) -> None:
                advance(number * total + done, len(orders) * len(ready) * total, label)

            ordered = replace(config, test=replace(config.test, order=orders[place]))
            with self._attempt(entry):
                result = _result(self.context, ordered, entry, choice, progress)
                results[place].append({**result, "tuning": None, "rates": None} if place else result)
        return results

    def _begin(self, stage: str) -> None:
        """Show the number of the stage among those of all cases and seeds."""
        recipe = self.recipe
        planned = [CLIENTS, TRAINING, *[LEARNING] * recipe.learns, *[TUNING] * tunes(recipe), COMPARING]
        runs = len(recipe.cases) * len(recipe.seeds)
        if stage in planned:
            number = self.number * len(planned) + planned.index(stage) + 1
            place = f" ({self.place})" if runs > 1 else ""
            self.context.stage = f"stage {number} of {runs * len(planned)}{place}"

    @contextmanager
    def _attempt(self, entry: MethodSpec) -> Iterator[None]:
        """Record errors of an entry as text; the error itself would keep the population in memory."""
        try:
            with located(entry.label):
                yield
        except (BatchError, MethodError, FederationError, RatesError) as error:
            failure = f"{entry.label} ({self.place}): {error}"
            self.failures.append(failure)
            log.warning("%s; continuing with the other entries", failure)


def _result(
    context: ExperimentContext, config: Config, entry: MethodSpec, choice: Chosen, progress: Progress
) -> MethodResult:
    rates = None if choice.rates is None else stages.learned(context, choice.rates)
    return {
        "label": entry.label,
        "method": entry.method,
        "config": asdict(choice.method),
        "tuning": cast(Tuning | None, choice.tuning),
        "rates": cast(LearnedRates | None, rates),
        **stages.judged(context, config, choice, progress),
    }


KINDS = {COMPARISON: compared, TOY: toy_runs}
