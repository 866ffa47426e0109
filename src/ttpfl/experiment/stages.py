"""The stages of an experiment; each uses those before it and is computed only once."""

import logging
import shutil
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from ttpfl.core.rates import Rates
from ttpfl.errors import DataError
from ttpfl.evaluation import Evaluator
from ttpfl.experiment.config import Config
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.inputs import (
    comparison_inputs,
    learning_inputs,
    model_inputs,
    population_inputs,
    rates_inputs,
    training_inputs,
    tuning_inputs,
)
from ttpfl.experiment.store import file_digest
from ttpfl.experiment.trial import Prepared, Trial, described, modules_of
from ttpfl.federation import learn, train
from ttpfl.federation.checkpoints.progress import Rounds
from ttpfl.federation.cross_fitting import without
from ttpfl.methods import Method, make
from ttpfl.models import Signature, build, load_model
from ttpfl.models.build import arguments_for
from ttpfl.models.files import read_card
from ttpfl.models.weights import load_backbone
from ttpfl.results.runs import columns
from ttpfl.results.schema import METRICS, Measured
from ttpfl.util.parallel import Progress
from ttpfl.util.randomness import seeded

log = logging.getLogger("ttpfl")

Result = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """A method with its hyper-parameters and the settings with which its rates are learned."""

    method: Method
    rates: Config | None
    tuning: Result | None = None


def population(context: ExperimentContext, config: Config) -> Result:
    """The description of the population."""
    inputs = population_inputs(config)
    result = context.store.get("population", inputs, lambda _: described(context.clients(config)))
    digest = context.clients(config).manifest.digest
    _check_same(context, config.data.name, result["population"]["digest"], digest)
    return result


def trained(context: ExperimentContext, config: Config, part: int | None = None) -> Result:
    """The history of the global model's training, or of a model that does not see one part of the clients."""
    inputs, title = model_inputs(config, part), "training the model"
    if part is not None:
        title += f" without part {part + 1} of {config.learn.cross_fit}"

    def work(folder: Path) -> Result:
        clients, labels, manifest = context.clients(config)
        info, arguments = clients.info, _network(context, config)
        with seeded(config.seed):
            initial = load_backbone(build(**arguments), weights)
        if info.shape:  # before hours of training
            Signature.of(info).check_fits(deepcopy(initial).eval())
        shared = context.store.folder("training", training_inputs(config, part))
        run_dir = context.run_dir(config.train, shared, folder)
        sources = clients.source if part is None else without(clients.source, part, config.learn.cross_fit)
        with context.watch(title, "round") as advance:
            result = train(
                initial,
                sources,
                replace(config.train, workers=context.workers),
                run_dir=run_dir,
                resume=True,
                callbacks=[Rounds(advance)],
                evaluate=Evaluator(clients.target, labels).of_model,
                card={
                    "build": arguments,
                    "data": population_inputs(config),
                    "population": manifest.digest,
                    "signature": asdict(Signature.of(info)),
                },
            )
        _copy_into(folder, run_dir / "model.safetensors")
        return {"history": result.history, "weights": digest}

    # Whoever continues from a model does not need its initial weights.
    if context.exported is not None and part is None:
        population = context.clients(config).manifest.digest
        context.exported.place_model(context.store, inputs, _network(context, config), population)
        return context.store.get("model", inputs, work, files=["model.safetensors"])
    weights = weights_file(context, config)
    digest = None if weights is None else file_digest(weights)
    result = context.store.get("model", inputs, work, files=["model.safetensors"])
    _check_same(context, str(weights), result.get("weights"), digest)
    return result


def check_start(context: ExperimentContext, config: Config) -> None:
    """Raise an error if the file that the model starts from is missing: exported model or initial weights."""
    if context.exported is not None:
        context.exported.model(model_inputs(config))
    else:
        weights_file(context, config)


def weights_file(context: ExperimentContext, config: Config) -> Path | None:
    """The file of initial weights, if any; an error if it is missing."""
    return context.file(config.model.weights, "model.weights") if config.model.weights else None


def _network(context: ExperimentContext, config: Config) -> Result:
    """The arguments that build the network."""
    info = context.clients(config).population.info
    return arguments_for(config.model.name, len(info.classes), info.image_size, info.shape)


def _check_same(context: ExperimentContext, name: str, before: str | None, now: str | None) -> None:
    """Raise an error if data changed, since stages are identified by names and settings alone."""
    if before != now:
        raise DataError(
            f"{name} has changed since the stages in {context.store.root} were computed: "
            "remove that folder, or use another one (--out)"
        )


def model(context: ExperimentContext, config: Config, part: int | None = None) -> nn.Module:
    """The global model in evaluation mode, or one that has not seen a part of the clients."""
    trained(context, config, part)
    path = context.store.folder("model", model_inputs(config, part)) / "model.safetensors"
    return load_model(path, build(**read_card(path)["build"]))[0]  # a trusted file, so any network is allowed


def learned(context: ExperimentContext, config: Config) -> Result:
    """The rates and their history."""

    def work(folder: Path) -> Result:
        case = trial(context, config)
        unseen = [model(context, config, part) for part in range(config.learn.cross_fit)]
        shared = context.store.folder("learning", learning_inputs(config))
        run_dir = context.run_dir(config.learn, shared, folder)
        with context.watch("learning rates", "round") as advance:
            result = learn(
                case.model,
                case.clients.population.source,
                replace(config.learn, workers=context.workers),
                run_dir=run_dir,
                resume=True,
                callbacks=[Rounds(advance)],
                evaluate=lambda rates: case.evaluator.of_rates(case.model, rates),
                unseen=unseen,
            )
        _copy_into(folder, run_dir / "rates.safetensors")
        return {"modules": modules_of(result.rates), "history": result.history}

    inputs = rates_inputs(config)
    if context.exported is None:  # also if the rates are stored: the time of these models counts
        for part in range(config.learn.cross_fit):
            trained(context, config, part)
    elif not context.exported.place_rates(context.store, inputs):
        log.warning("%s has no rates for these settings: they are learned", context.exported.folder)
    return context.store.get("rates", inputs, work, files=["rates.safetensors"])


def rates(context: ExperimentContext, config: Config) -> Rates:
    """The rates as an object."""
    learned(context, config)
    return Rates.load(context.store.folder("rates", rates_inputs(config)) / "rates.safetensors")


def tuned(context: ExperimentContext, config: Config, method: Method, rates: Config | None) -> Chosen:
    """The method with the best hyper-parameters on source clients' validation data."""
    if not config.tune.clients or not method.grid():
        return Chosen(method, rates)

    def work(folder: Path) -> Result:
        best, tuning = trial(context, config, method, rates).tuned(method, config.tune.clients, context.watch)
        return {"best": asdict(best), **tuning}

    result = context.store.get("tuning", tuning_inputs(config, method, rates), work)
    return Chosen(make(method.name, **result.pop("best")), rates, result)


def judged(
    context: ExperimentContext, config: Config, chosen: Chosen, progress: Progress | None = None
) -> Measured:
    """The metrics of a method at every target client."""

    def work(folder: Path) -> Result:
        case = trial(context, config, chosen.method, chosen.rates)
        prepared = Prepared(chosen.method, case.source_info(chosen.method))
        comparison = case.compared([prepared], folder, progress)
        (entry,) = comparison.run["entries"]
        guard = {"guard": entry["guard"]} if "guard" in entry else {}
        return {name: comparison.of(chosen.method.name, name) for name in METRICS} | guard

    result = context.store.get("comparison", comparison_inputs(config, chosen.method, chosen.rates), work)
    # Earlier versions stored rows.
    return columns(result["rows"]) if "rows" in result else cast(Measured, result)


def trial(
    context: ExperimentContext, config: Config, method: Method | None = None, learned_at: Config | None = None
) -> Trial:
    """A case's model and clients, with the rates that a method needs."""
    available: dict[str, Rates] = {}
    if method is not None and learned_at is not None:
        available[str(method.needs_rates)] = rates(context, learned_at)
    clients = context.clients(config)
    return Trial(model(context, config), clients, available, config.test, config.seed, context.workers)


def _copy_into(folder: Path, file: Path) -> None:
    """Copy a run's result, which the run replaces when it continues."""
    if file.parent != folder:
        shutil.copyfile(file, folder / file.name)
