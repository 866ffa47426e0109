"""The inputs that identify each stage. They exclude what does not affect results, such as workers."""

import hashlib
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ttpfl.experiment.config import Config, Test
from ttpfl.federation.settings import RENAMED, SGD, RunSettings
from ttpfl.methods import Method
from ttpfl.models.build import MODELS

Inputs = dict[str, Any]

STREAMS = 2
"""The version of target clients' streams; results of other versions are not reused."""


def population_inputs(config: Config) -> Inputs:
    """The population; model files contain this too."""
    choices = {**config.data.choices, "seed": config.seed}
    return {"name": config.data.name, "options": dict(config.data.options), "choices": choices}


def training_inputs(config: Config, without: int | None = None) -> Inputs:
    """A training run, regardless of its number of rounds; `without` one part of the clients."""
    return {
        "data": population_inputs(config),
        "model": {**asdict(config.model), **_network_code(config.model.name)},
        "train": _choices(config.train),
        **({"streams": STREAMS} if config.train.eval_every else {}),
        **({} if without is None else {"without": [without, config.learn.cross_fit]}),
    }


def model_inputs(config: Config, without: int | None = None) -> Inputs:
    """The global model after the configured rounds, or one that has not seen a part of the clients."""
    return {**training_inputs(config, without), "rounds": config.train.rounds}


def learning_inputs(config: Config) -> Inputs:
    """A run of rate learning, regardless of its number of rounds."""
    inputs: Inputs = {"model": model_inputs(config), "learn": _choices(config.learn)}
    if config.learn.eval_every:  # its history depends on target clients
        inputs |= {} if config.test == Test() else {"test": asdict(config.test)}
        inputs["streams"] = STREAMS
    return inputs


def rates_inputs(config: Config) -> Inputs:
    """The rates after the configured rounds."""
    return {**learning_inputs(config), "rounds": config.learn.rounds}


def method_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """A method on a case's model, with rates that may be learned on another case."""
    return {
        "model": model_inputs(config),
        "method": [method.name, method.identity()],
        **_code(type(method).__module__),
        "rates": None if rates is None else rates_inputs(rates),
        "test": asdict(config.test),
    }


def comparison_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """A method at the target clients."""
    return {**method_inputs(config, method, rates), "streams": STREAMS}


def tuning_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """The tuning of a method."""
    inputs = method_inputs(config, method, rates)
    return {**inputs, "clients": config.tune.clients, "grid": method.grid()}


def _network_code(name: str) -> Inputs:
    """A hash of the code of a user's network: the module that is named, and the one that defines it."""
    if name in MODELS:
        return {}
    return _code(name.partition(":")[0], getattr(pkgutil.resolve_name(name), "__module__", ""))


def _code(*modules: str) -> Inputs:
    """A hash of the user's modules, so that changing them invalidates stages.

    The library's own code is identified by its version, which is part of every key.
    """
    names = sorted({name for name in modules if name.partition(".")[0] != _LIBRARY})
    files = [file for name in names if (file := getattr(sys.modules.get(name), "__file__", None))]
    if not files:
        return {}
    return {"code": hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()}


_LIBRARY = __name__.partition(".")[0]


def _choices(settings: RunSettings) -> Inputs:
    """The settings that differ from the defaults, so that new and renamed settings change no key.

    Those of SGD are as before there was another optimizer.
    """
    defaults, old = settings.defaults().decisive(), {new: old for old, new in RENAMED.items()}
    chosen = {name: value for name, value in settings.decisive().items() if value != defaults[name]}
    if getattr(settings, "optimizer", SGD) != SGD:
        chosen["optimizer"] = settings.optimizer
    return {old.get(name, name): value for name, value in chosen.items()}
