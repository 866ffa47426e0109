"""What each stage depends on. Numbers of workers and the like do not matter, and are left out."""

import hashlib
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ttpfl.experiment.config import Config, Test
from ttpfl.federation.settings import RENAMED, RunSettings
from ttpfl.methods import Method
from ttpfl.models.build import MODELS

Inputs = dict[str, Any]

STREAMS = 2
"""Raised when target clients' streams change, so that no figure of earlier streams is used again."""


def population_inputs(config: Config) -> Inputs:
    """The clients; also what a model's file says about its data."""
    choices = {**config.data.choices, "seed": config.seed}
    return {"name": config.data.name, "options": dict(config.data.options), "choices": choices}


def training_inputs(config: Config) -> Inputs:
    """A run of training, whatever its number of rounds."""
    return {
        "data": population_inputs(config),
        "model": {**asdict(config.model), **_network_code(config.model.name)},
        "train": _choices(config.train),
        **({"streams": STREAMS} if config.train.eval_every else {}),
    }


def model_inputs(config: Config) -> Inputs:
    """The global model after so many rounds."""
    return {**training_inputs(config), "rounds": config.train.rounds}


def learning_inputs(config: Config) -> Inputs:
    """A run of rate learning, whatever its number of rounds; its history may look at target clients."""
    seen = {**_seen(config.test), "streams": STREAMS} if config.learn.eval_every else {}
    return {"model": model_inputs(config), "learn": _choices(config.learn), **seen}


def rates_inputs(config: Config) -> Inputs:
    """The rates after so many rounds."""
    return {**learning_inputs(config), "rounds": config.learn.rounds}


def method_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """A method on a case's model, with rates that may have been learned elsewhere."""
    return {
        "model": model_inputs(config),
        "method": [method.name, asdict(method)],
        **_code(type(method).__module__),
        "rates": None if rates is None else rates_inputs(rates),
        "test": asdict(config.test),
    }


def comparison_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """A method at the target clients, whose streams are those of this version."""
    return {**method_inputs(config, method, rates), "streams": STREAMS}


def tuning_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """The choice of a method's hyper-parameters."""
    inputs = method_inputs(config, method, rates)
    return {**inputs, "clients": config.tune.clients, "grid": method.grid()}


def _seen(test: Test) -> Inputs:
    """How target clients' streams come, where that is not as by default."""
    return {} if test == Test() else {"test": asdict(test)}


def _network_code(name: str) -> Inputs:
    """Of a network of the user's own: the module that its name says, and that which defines it."""
    if name in MODELS:
        return {}
    return _code(name.partition(":")[0], getattr(pkgutil.resolve_name(name), "__module__", ""))


def _code(*modules: str) -> Inputs:
    """A hash of modules that are not the library's: after a change to them, nothing old is used.

    The library itself is known by its version, which is part of every key.
    """
    own = sorted({name for name in modules if name.partition(".")[0] != _LIBRARY})
    files = [file for name in own if (file := getattr(sys.modules.get(name), "__file__", None))]
    if not files:
        return {}
    return {"code": hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()}


_LIBRARY = __name__.partition(".")[0]


def _choices(settings: RunSettings) -> Inputs:
    """What was chosen other than by default: a setting that is added or renamed changes no key."""
    defaults, old = type(settings)().decisive(), {new: old for old, new in RENAMED.items()}
    chosen = settings.decisive().items()
    return {old.get(name, name): value for name, value in chosen if value != defaults[name]}
