"""From an entry of a recipe to a method that is ready to be compared."""

from ttpfl.experiment import stages
from ttpfl.experiment.recipe import Entry, Recipe
from ttpfl.experiment.stages import Chosen
from ttpfl.experiment.workshop import Workshop
from ttpfl.methods import make


def chosen(recipe: Recipe, shop: Workshop, case: str, seed: int, entry: Entry) -> Chosen:
    """An entry's method with its hyper-parameters: the recipe's, or tuned, or the defaults."""
    config, method = recipe.config(case, seed), make(entry.method, **entry.config)
    needs = method.needs_rates
    rates = None if needs is None else recipe.rates_config(case, seed, entry, needs)
    return Chosen(method, rates) if entry.config else stages.tuned(shop, config, method, rates)
