"""The stages of an experiment; each asks for those before it, and is computed only once."""

import hashlib
import shutil
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
from ttpfl.experiment.trial import Prepared, Trial, described, modules_of
from ttpfl.federation import learn, train
from ttpfl.federation.checkpoints.progress import Rounds
from ttpfl.methods import Method, make
from ttpfl.models import Signature, build, load_model
from ttpfl.models.build import arguments_for
from ttpfl.models.files import read_card
from ttpfl.models.weights import load_backbone
from ttpfl.results.runs import columns
from ttpfl.results.schema import METRICS, Metrics
from ttpfl.util.parallel import Progress
from ttpfl.util.randomness import seeded
from ttpfl.util.reading import open_regular

Result = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """A method as it is compared: with its hyper-parameters, and where its rates were learned."""

    method: Method
    rates: Config | None
    tuning: Result | None = None


def population(shop: ExperimentContext, config: Config) -> Result:
    """What is known about the clients."""
    inputs = population_inputs(config)
    found = shop.store.get("population", inputs, lambda _: described(shop.clients(config)))
    _check_same(shop, config.data.name, found["population"]["digest"], shop.clients(config).manifest.digest)
    return found


def trained(shop: ExperimentContext, config: Config) -> Result:
    """How the global model came about."""

    def work(folder: Path) -> Result:
        clients, answers, manifest = shop.clients(config)
        info = clients.info
        said = arguments_for(config.model.name, len(info.classes), info.image_size)
        with seeded(config.seed):
            begin = load_backbone(build(**said), weights)
        shared = shop.store.folder("training", training_inputs(config))
        run_dir = shop.run_dir(config.train, shared, folder)
        with shop.watch("training the model", "round") as advance:
            found = train(
                begin,
                clients.source,
                replace(config.train, workers=shop.workers),
                run_dir=run_dir,
                resume=True,
                callbacks=[Rounds(advance)],
                evaluate=Evaluator(clients.target, answers).of_model,
                card={
                    "build": said,
                    "data": population_inputs(config),
                    "population": manifest.digest,
                    "signature": asdict(Signature.of(info)),
                },
            )
        _take_over(run_dir / "model.safetensors", folder)
        return {"history": found.history, "weights": digest}

    weights = weights_file(shop, config)
    digest = None
    if weights is not None:
        with open_regular(weights) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    found = shop.store.get("model", model_inputs(config), work, files=["model.safetensors"])
    _check_same(shop, str(weights), found.get("weights"), digest)
    return found


def weights_file(shop: ExperimentContext, config: Config) -> Path | None:
    """Where training begins, if not with fresh weights; an error if that file is missing."""
    return shop.file(config.model.weights, "model.weights") if config.model.weights else None


def _check_same(shop: ExperimentContext, name: str, before: str | None, now: str | None) -> None:
    """Stages are found by names and settings. What files with these names hold must be as it was."""
    if before != now:
        raise DataError(
            f"{name} is not what the stages in {shop.store.root} were computed with: "
            "remove that folder, or begin elsewhere (--out)"
        )


def model(shop: ExperimentContext, config: Config) -> nn.Module:
    """The global model in evaluation mode."""
    trained(shop, config)
    path = shop.store.folder("model", model_inputs(config)) / "model.safetensors"
    return load_model(path, build(**read_card(path)["build"]))[0]  # our own file: its network may be any


def learned(shop: ExperimentContext, config: Config) -> Result:
    """What the rates are, and how they came about."""

    def work(folder: Path) -> Result:
        case = trial(shop, config)
        shared = shop.store.folder("learning", learning_inputs(config))
        run_dir = shop.run_dir(config.learn, shared, folder)
        with shop.watch("learning rates", "round") as advance:
            found = learn(
                case.model,
                case.clients.population.source,
                replace(config.learn, workers=shop.workers),
                run_dir=run_dir,
                resume=True,
                callbacks=[Rounds(advance)],
                evaluate=lambda rates: case.evaluator.of_rates(case.model, rates),
            )
        _take_over(run_dir / "rates.safetensors", folder)
        return {"modules": modules_of(found.rates), "history": found.history}

    return shop.store.get("rates", rates_inputs(config), work, files=["rates.safetensors"])


def rates(shop: ExperimentContext, config: Config) -> Rates:
    """The rates themselves."""
    learned(shop, config)
    return Rates.load(shop.store.folder("rates", rates_inputs(config)) / "rates.safetensors")


def tuned(shop: ExperimentContext, config: Config, method: Method, rates: Config | None) -> Chosen:
    """The method with the hyper-parameters that are best on source clients' validation data."""
    if not config.tune.clients or not method.grid():
        return Chosen(method, rates)

    def work(folder: Path) -> Result:
        best, tuning = trial(shop, config, method, rates).tuned(method, config.tune.clients, shop.watch)
        return {"best": asdict(best), **tuning}

    found = shop.store.get("tuning", tuning_inputs(config, method, rates), work)
    return Chosen(make(method.name, **found.pop("best")), rates, found)


def judged(
    shop: ExperimentContext, config: Config, chosen: Chosen, progress: Progress | None = None
) -> Metrics:
    """How a method does at every target client; `progress` is told how many are done, of how many."""

    def work(folder: Path) -> Result:
        case = trial(shop, config, chosen.method, chosen.rates)
        ready = Prepared(chosen.method, case.source_info(chosen.method))
        found = case.compared([ready], folder, progress)
        return {name: found.of(chosen.method.name, name) for name in METRICS}

    found = shop.store.get("comparison", comparison_inputs(config, chosen.method, chosen.rates), work)
    # Earlier versions kept rows.
    return columns(found["rows"]) if "rows" in found else cast(Metrics, found)


def trial(
    shop: ExperimentContext, config: Config, method: Method | None = None, learned_at: Config | None = None
) -> Trial:
    """A case's model and clients, with the rates that a method needs."""
    known = {} if method is None or learned_at is None else {str(method.needs_rates): rates(shop, learned_at)}
    return Trial(model(shop, config), shop.clients(config), known, config.test, config.seed, shop.workers)


def _take_over(file: Path, folder: Path) -> None:
    """A run that goes on replaces its result, so that a stage needs its own copy."""
    if file.parent != folder:
        shutil.copyfile(file, folder / file.name)
