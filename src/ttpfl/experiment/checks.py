"""Checks of a recipe that need no data."""

import json
import pkgutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import torch

from ttpfl.data.population_config import config_of
from ttpfl.data.registry import check_choices, check_options, dataset_info
from ttpfl.errors import DataError, MethodError, RecipeError
from ttpfl.experiment.config import Config, Data, located
from ttpfl.federation.clients.model_work import algorithm_of
from ttpfl.methods import Method, make
from ttpfl.methods.fixed_rates import FixedRates
from ttpfl.models.build import MODELS, build
from ttpfl.results.schema import Paper
from ttpfl.util.settings_kit import NUMBER, as_type, check_known, must_be


def check_config(config: Config) -> None:
    """Check the names of data set, domain, network and algorithm."""
    with located("data"):
        _check_data(config.data)
    with located("model"):
        _check_network(config.model.name)
    with located("train"):
        algorithm_of(config.train)


def checked_method(label: str, name: str, config: Mapping[str, Any]) -> Method:
    """Create the method of an entry."""
    try:
        return _made(name, json.dumps(config))
    except (MethodError, TypeError) as error:  # such as a string where a number is compared
        raise RecipeError(f"{label!r}: {error}") from None


@lru_cache
def _made(name: str, config: str) -> Method:
    """Cached, since presets and cases repeat most entries and searching entry points takes long."""
    return make(name, **json.loads(config))


def check_modules(label: str, method: Method, network: str) -> None:
    """Check that the patterns of fixed rates match a module."""
    if not isinstance(method, FixedRates) or network not in MODELS:
        return
    names = _module_names(network)
    if not any(fnmatchcase(name, pattern) for name in names for pattern in method.modules.split("|")):
        layers = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
        raise RecipeError(f"{label!r}: {network} has no module {method.modules!r}; its layers are {layers}")


def check_finite(value: Any, place: str = "") -> None:
    """Reject infinite and NaN numbers, which JSON files cannot contain.

    >>> check_finite({"train": {"lr": float("inf")}})
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: train.lr must be a finite number, got inf
    """
    if isinstance(value, float):
        NUMBER.check(RecipeError, **{place: value})
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_finite(item, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check_finite(item, f"{place}[{number}]")


def check_paper(paper: Mapping[str, Any], cases: Iterable[str] | None) -> None:
    """Check the paper's figures and, unless `cases` is None, the names of their cases."""
    for label, figures in as_type("paper", paper, Paper, RecipeError).items():
        for case in figures if cases is not None else ():
            check_known("case", case, cases or (), RecipeError, f"in paper.{label}")


def _check_data(data: Data) -> None:
    info = dataset_info(data.name)
    with located("options"):
        check_options(data.name, data.options)
    check_choices(data.name, data.choices)
    if info.natural or not info.classes:  # clients that exist by themselves
        return
    config = config_of(info.defaults, data.choices)
    if config.kind.domains and config.held_out is None:
        raise RecipeError(must_be("held_out", f"set to one of {', '.join(info.domains)}", None))
    if config.held_out is not None:
        check_known("domain", config.held_out, info.domains, DataError)


def _check_network(name: str) -> None:
    if ":" not in name:
        check_known("network", name, [*MODELS, "package.module:function"], DataError)
        return
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecipeError(f"the network {name!r} cannot be imported: {error}") from None


@lru_cache
def _module_names(network: str) -> tuple[str, ...]:
    with torch.device("meta"):  # only names, no weights
        return tuple(build(network, num_classes=10, image_size=32).state_dict())
