"""From an entry of a recipe to a method with its hyper-parameters and rates."""

from ttpfl.experiment import stages
from ttpfl.experiment.config import Config
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import MethodSpec, Recipe
from ttpfl.experiment.stages import Chosen
from ttpfl.methods import make


def chosen(recipe: Recipe, context: ExperimentContext, case: str, seed: int, entry: MethodSpec) -> Chosen:
    """An entry's method with the recipe's, tuned or default hyper-parameters."""
    config, method = recipe.config(case, seed), make(entry.method, **entry.config)
    rates = rates_of(recipe, case, seed, entry)
    return Chosen(method, rates) if entry.config else stages.tuned(context, config, method, rates)


def rates_of(recipe: Recipe, case: str, seed: int, entry: MethodSpec) -> Config | None:
    """The settings with which an entry's rates are learned; None if it needs none."""
    needs = make(entry.method, **entry.config).needs_rates
    return None if needs is None else recipe.rates_config(case, seed, entry, needs)


def tunes(recipe: Recipe) -> bool:
    """Whether any entry is tuned."""
    grids = any(not entry.config and make(entry.method).grid() for entry in recipe.entries)
    return grids and any(recipe.config(case, recipe.seeds[0]).tune.clients for case in recipe.cases)
