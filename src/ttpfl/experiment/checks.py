"""What cannot work is refused when a recipe is read, as far as that is known without data."""

import json
import pkgutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import torch

from ttpfl.data.own_clients import own_config
from ttpfl.data.population_config import config_of
from ttpfl.data.registry import check_options, dataset_info
from ttpfl.errors import DataError, MethodError, RecipeError
from ttpfl.experiment.config import Config, Data, located
from ttpfl.federation.work.model_work import algorithm_of
from ttpfl.methods import Method, make
from ttpfl.methods.fixed_rates import FixedRates
from ttpfl.models.build import MODELS, build
from ttpfl.util.settings_kit import NUMBER, as_type, check_known, must_be


def check_config(config: Config) -> None:
    """The names that a case says: of data, domain, network and algorithm."""
    with located("data"):
        _check_data(config.data)
    with located("model"):
        _check_network(config.model.name)
    with located("train"):
        algorithm_of(config.train)


def checked_method(label: str, name: str, config: Mapping[str, Any]) -> Method:
    """The method of a line of the comparison with its hyper-parameters."""
    try:
        return _made(name, json.dumps(config))
    except (MethodError, TypeError) as error:  # a text where a number is compared with another
        raise RecipeError(f"{label!r}: {error}") from None


@lru_cache
def _made(name: str, config: str) -> Method:
    """Looking for methods of installed packages takes long, and presets and cases repeat most lines."""
    return make(name, **json.loads(config))


def check_modules(label: str, method: Method, network: str) -> None:
    """Rates that are fixed by patterns of names need a module of such a name."""
    if not isinstance(method, FixedRates) or network not in MODELS:
        return
    names = _module_names(network)
    if not any(fnmatchcase(name, pattern) for name in names for pattern in method.modules.split("|")):
        begin = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
        raise RecipeError(
            f"{label!r}: {network} has no module {method.modules!r}; "
            f"the names of its modules begin with {begin}"
        )


def check_finite(said: Any, where: str = "") -> None:
    """No number in a recipe may be infinite or nan: files of results and of stages could not say it.

    >>> check_finite({"train": {"lr": float("inf")}})
    Traceback (most recent call last):
        ...
    ttpfl.errors.RecipeError: train.lr must be a finite number, got inf
    """
    if isinstance(said, float):
        NUMBER.check(RecipeError, **{where: said})
    if isinstance(said, Mapping):
        for key, value in said.items():
            check_finite(value, f"{where}.{key}" if where else key)
    elif isinstance(said, list):
        for number, value in enumerate(said):
            check_finite(value, f"{where}[{number}]")


def check_paper(paper: Mapping[str, Any], cases: Iterable[str] | None) -> None:
    """Figures to compare with: for each label and case a mean, and a standard deviation if there is one.

    There may be figures of methods that are not compared, but none of unknown cases, if cases are given.
    """
    for label, of_cases in paper.items():
        for case, figures in as_type(f"paper.{label}", of_cases, dict, RecipeError).items():
            if cases is not None:
                check_known("case", case, cases, RecipeError, f"in paper.{label}")
            said = figures if isinstance(figures, list) else []
            if len(said) not in (1, 2) or not all(type(figure) in (int, float) for figure in said):
                raise RecipeError(must_be(f"paper.{label}.{case}", "[mean] or [mean, sd]", figures))


def _check_data(data: Data) -> None:
    known = dataset_info(data.name)
    with located("options"):
        check_options(data.name, data.options)
    if not known.classes:  # found in the user's own data
        own_config(data.choices)
        return
    config = config_of(known.defaults, data.choices)
    if config.kind.domains and config.held_out is None:
        raise RecipeError(must_be("held_out", f"set to one of {', '.join(known.domains)}", None))
    if config.held_out is not None:
        check_known("domain", config.held_out, known.domains, DataError)


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
    with torch.device("meta"):  # names alone, no weights
        return tuple(build(network, num_classes=10, image_size=32).state_dict())
