"""What each stage depends on. Numbers of workers and the like do not matter, and are left out."""

from dataclasses import asdict
from typing import Any

from ttpfl.experiment.config import Config
from ttpfl.federation.settings import RunSettings
from ttpfl.methods import Method

Inputs = dict[str, Any]


def population_inputs(config: Config) -> Inputs:
    """The clients; also what a model's file says about its data."""
    choices = {**config.data.choices, "seed": config.seed}
    return {"name": config.data.name, "options": dict(config.data.options), "choices": choices}


def training_inputs(config: Config) -> Inputs:
    """A run of training, whatever its number of rounds."""
    return {
        "data": population_inputs(config),
        "model": asdict(config.model),
        "train": _choices(config.train),
    }


def model_inputs(config: Config) -> Inputs:
    """The global model after so many rounds."""
    return {**training_inputs(config), "rounds": config.train.rounds}


def learning_inputs(config: Config) -> Inputs:
    """A run of rate learning, whatever its number of rounds."""
    return {"model": model_inputs(config), "learn": _choices(config.learn)}


def rates_inputs(config: Config) -> Inputs:
    """The rates after so many rounds."""
    return {**learning_inputs(config), "rounds": config.learn.rounds}


def method_inputs(config: Config, method: Method, rates: Config | None) -> Inputs:
    """A method on a case's model, with rates that may have been learned elsewhere."""
    return {
        "model": model_inputs(config),
        "method": [method.name, asdict(method)],
        "rates": None if rates is None else rates_inputs(rates),
        "test": asdict(config.test),
    }


def _choices(settings: RunSettings) -> Inputs:
    """What was chosen other than by default: a setting that is added to the library changes no key."""
    defaults = type(settings)().decisive()
    return {name: value for name, value in settings.decisive().items() if value != defaults[name]}
