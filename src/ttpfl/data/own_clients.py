"""A population of clients that are given, which are only split into training and validation data."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Clients, Population, SourceClient, TargetClient, TargetLabels, source_client
from ttpfl.data.division import SMALLEST
from ttpfl.data.natural_clients import NaturalClients, NaturalConfig
from ttpfl.data.partition import Ids
from ttpfl.data.plan import split as parts_of
from ttpfl.data.population_config import PopulationConfig
from ttpfl.data.samples import Samples, normalisation
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import check_known

DIVIDED = ("validation", "seed")
"""The options of clients that are already divided into source and target clients."""


def own_config(choices: Mapping[str, Any], natural: bool = False) -> dict[str, Any]:
    """The options that apply to given clients, checked; `natural` clients can be held out.

    >>> own_config({"shift": "label"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown option 'shift' of your own clients. Available: validation, seed
    >>> own_config({"fold": 2}, natural=True)
    {'held_out': None, 'folds': 5, 'fold': 2, 'split': 'random', 'validation': 0.2, 'seed': 0}
    """
    known = tuple(NaturalConfig.__dataclass_fields__) if natural else DIVIDED
    for name in choices:
        check_known("option", name, known, DataError, "of your own clients")
    if natural:
        return asdict(NaturalConfig(**choices))
    config = PopulationConfig(**choices)
    return {name: getattr(config, name) for name in DIVIDED}


def client_option_types(include_extras: bool = False) -> dict[str, Any]:
    """The types of all population options: of clients that are made, and of those that exist.

    >>> client_option_types()["folds"]
    <class 'int'>
    """
    made, given = (
        get_type_hints(kind, include_extras=include_extras) for kind in (PopulationConfig, NaturalConfig)
    )
    return {**made, **given}


def own_clients(
    data: ClientArrays | NaturalClients, choices: Mapping[str, Any]
) -> tuple[Population, TargetLabels, dict[str, Any]]:
    """The population of given clients, the labels of its target clients, and all options."""
    config = own_config(choices, isinstance(data, NaturalClients))
    if isinstance(data, ClientArrays):
        return *own_population(data, **config), config
    natural = NaturalConfig(**config)
    divided = data.divided(natural)
    recorded = natural.split == "recorded"
    return *own_population(divided, natural.validation, natural.seed, recorded), config


def own_population(
    data: ClientArrays, validation: float, seed: int, recorded: bool = False
) -> tuple[Population, TargetLabels]:
    """The clients under their own names; samples of source clients are shuffled before the split.

    With `recorded`, they stay in order, like those of target clients, because the order may be meaningful.
    """
    source_names, target_names = list(data.source), list(data.target)
    for name, client in data.source.items():
        if len(client.x) < SMALLEST:
            raise DataError(
                f"source client {name!r} has {len(client.x)} sample, but needs at least one for training and "
                "one for validation: leave it out"
            )

    @cache  # for thousands of clients, drawing it twice takes longer than reading their samples
    def order(number: int) -> Ids:
        count = len(data.source[source_names[number]].x)
        return np.arange(count) if recorded else np.random.default_rng((seed, number)).permutation(count)

    info = data.info
    if info.shape and not info.mean:
        training = (
            (name, data.source[name].x, parts_of(order(number), validation)[0])
            for number, name in enumerate(source_names)
        )
        mean, std = normalisation(training, info)
        info = replace(info, mean=mean, std=std)

    def common(name: str, x: Samples) -> dict[str, Any]:
        # `take` is bound to the samples alone: labels of target clients must stay out of reach.
        return {"id": name, "domain": name, "corruption": None, "info": info, "take": x.__getitem__}

    def source(number: int) -> SourceClient:
        name = source_names[number]
        x, y = data.source[name]
        assert y is not None  # checked by ClientArrays
        return source_client(order(number), y, validation, **common(name, x))

    def target(number: int) -> TargetClient:
        name = target_names[number]
        x = data.target[name].x
        return TargetClient(**common(name, x), ids=np.arange(len(x)))

    clients = Clients(len(source_names), source), Clients(len(target_names), target)
    population = Population(*clients, info)
    return population, TargetLabels(population.target, lambda client: data.target[client.id].y)
