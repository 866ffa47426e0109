"""The user's own clients as a population: they are what they are, only a part is held back."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Clients, Population, SourceClient, TargetClient, TargetLabels
from ttpfl.data.division import SMALLEST
from ttpfl.data.partition import Ids
from ttpfl.data.pixels import Array
from ttpfl.data.plan import split
from ttpfl.data.population_config import PopulationConfig
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import check_known

CHOICES = ("validation", "seed")


def own_config(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that there are for clients that exist already, checked.

    >>> own_config({"shift": "label"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown option 'shift' of your own clients. Available: validation, seed
    """
    for name in choices:
        check_known("option", name, CHOICES, DataError, "of your own clients")
    config = PopulationConfig(**choices)
    return {name: getattr(config, name) for name in CHOICES}


def own_population(data: ClientArrays, validation: float, seed: int) -> tuple[Population, TargetLabels]:
    """The clients under their own names; images of source clients are shuffled before the split.

    Target clients keep the order that their images came in: it may mean something.
    """
    names, targets = list(data.source), list(data.target)
    for name, client in data.source.items():
        if len(client.x) < SMALLEST:
            raise DataError(
                f"source client {name!r} has {len(client.x)} image, but one to train with and one to "
                "validate with are the least: leave it out"
            )

    def source(number: int) -> SourceClient:
        name = names[number]
        x, y = data.source[name]
        assert y is not None  # ClientArrays made sure of it
        order = np.random.default_rng((seed, number)).permutation(len(x))
        train, held_back = split(order, validation)
        return SourceClient(
            id=name,
            domain=name,
            corruption=None,
            info=data.info,
            take=partial(_taken, x),
            train_ids=train,
            train_labels=y[train],
            validation_ids=held_back,
            validation_labels=y[held_back],
        )

    def target(number: int) -> TargetClient:
        name = targets[number]
        x = data.target[name].x
        return TargetClient(name, name, None, data.info, partial(_taken, x), np.arange(len(x)))

    population = Population(Clients(len(names), source), Clients(len(targets), target), data.info)
    return population, TargetLabels(population.target, lambda client: data.target[client.id].y)


def _taken(x: Array, ids: Ids) -> Array:
    return x[ids]
