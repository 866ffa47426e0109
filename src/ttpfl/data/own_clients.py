"""A population of the user's own clients, which are only split into training and validation data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Clients, Population, SourceClient, TargetClient, TargetLabels, source_client
from ttpfl.data.division import SMALLEST
from ttpfl.data.pixels import Array
from ttpfl.data.population_config import PopulationConfig
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import check_known

CHOICES = ("validation", "seed")


def own_config(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The options that apply to existing clients, checked.

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

    Images of target clients stay in order, because the order may be meaningful.
    """
    source_names, target_names = list(data.source), list(data.target)
    for name, client in data.source.items():
        if len(client.x) < SMALLEST:
            raise DataError(
                f"source client {name!r} has {len(client.x)} image, but needs at least one for training and "
                "one for validation: leave it out"
            )

    def common(name: str, x: Array) -> dict[str, Any]:
        # `take` is bound to the pixels alone: labels of target clients must stay out of reach.
        return {"id": name, "domain": name, "corruption": None, "info": data.info, "take": x.__getitem__}

    def source(number: int) -> SourceClient:
        name = source_names[number]
        x, y = data.source[name]
        assert y is not None  # checked by ClientArrays
        order = np.random.default_rng((seed, number)).permutation(len(x))
        return source_client(order, y, validation, **common(name, x))

    def target(number: int) -> TargetClient:
        name = target_names[number]
        x = data.target[name].x
        return TargetClient(**common(name, x), ids=np.arange(len(x)))

    clients = Clients(len(source_names), source), Clients(len(target_names), target)
    population = Population(*clients, data.info)
    return population, TargetLabels(population.target, lambda client: data.target[client.id].y)
