"""The stages of an experiment; each asks for those before it, and is computed only once."""

import hashlib
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from torch import nn

from ttpfl.data.clients import evenly
from ttpfl.data.federate import Federated
from ttpfl.data.parallel import Progress
from ttpfl.errors import DataError
from ttpfl.evaluation import Evaluator, compare, gather
from ttpfl.experiment.config import Config
from ttpfl.experiment.inputs import (
    comparison_inputs,
    learning_inputs,
    model_inputs,
    population_inputs,
    rates_inputs,
    training_inputs,
    tuning_inputs,
)
from ttpfl.experiment.workshop import Workshop
from ttpfl.federation import learn, train
from ttpfl.federation.progress import Rounds
from ttpfl.methods import Knowledge, Method, make
from ttpfl.methods.tuning import tune
from ttpfl.models import Signature, build, load_model
from ttpfl.models.build import arguments_for
from ttpfl.models.files import read_card
from ttpfl.models.weights import load_backbone
from ttpfl.randomness import seeded
from ttpfl.rates import Rates
from ttpfl.reading import open_regular
from ttpfl.results.schema import FIGURES, Client, Figures, Module, Population, columns

Result = dict[str, Any]


class Described(TypedDict):
    """A population and its target clients, as results have them."""

    population: Population
    clients: list[Client]


@dataclass(frozen=True)
class Chosen:
    """A method as it is compared: with its hyper-parameters, and where its rates were learned."""

    method: Method
    rates: Config | None
    tuning: Result | None = None


def population(shop: Workshop, config: Config) -> Described:
    """What is known about the clients."""
    inputs = population_inputs(config)
    found = shop.store.get("population", inputs, lambda _: {**described(shop.clients(config))})
    _check_same(shop, config.data.name, found["population"]["digest"], shop.clients(config).manifest.digest)
    return cast(Described, found)


def trained(shop: Workshop, config: Config) -> Result:
    """How the global model came about."""

    def work(folder: Path) -> Result:
        clients, answers, manifest = shop.clients(config)
        facts = clients.facts
        said = arguments_for(config.model.name, len(facts.classes), facts.image_size)
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
                    "signature": asdict(Signature.of(facts)),
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


def weights_file(shop: Workshop, config: Config) -> Path | None:
    """Where training begins, if not with fresh weights; an error if that file is missing."""
    return shop.file(config.model.weights, "model.weights") if config.model.weights else None


def _check_same(shop: Workshop, name: str, before: str | None, now: str | None) -> None:
    """Stages are found by names and settings. What files with these names hold must be as it was."""
    if before != now:
        raise DataError(
            f"{name} is not what the stages in {shop.store.root} were computed with: "
            "remove that folder, or begin elsewhere (--out)"
        )


def model(shop: Workshop, config: Config) -> nn.Module:
    """The global model in evaluation mode."""
    trained(shop, config)
    path = shop.store.folder("model", model_inputs(config)) / "model.safetensors"
    return load_model(path, build(**read_card(path)["build"]))[0]  # our own file: its network may be any


def learned(shop: Workshop, config: Config) -> Result:
    """What the rates are, and how they came about."""

    def work(folder: Path) -> Result:
        own, source = model(shop, config), shop.clients(config).population.source
        judge = evaluator(shop, config)
        shared = shop.store.folder("learning", learning_inputs(config))
        run_dir = shop.run_dir(config.learn, shared, folder)
        with shop.watch("learning rates", "round") as advance:
            found = learn(
                own,
                source,
                replace(config.learn, workers=shop.workers),
                run_dir=run_dir,
                resume=True,
                callbacks=[Rounds(advance)],
                evaluate=lambda rates: judge.of_rates(own, rates),
            )
        _take_over(run_dir / "rates.safetensors", folder)
        return {"modules": modules_of(found.rates), "history": found.history}

    return shop.store.get("rates", rates_inputs(config), work, files=["rates.safetensors"])


def rates(shop: Workshop, config: Config) -> Rates:
    """The rates themselves."""
    learned(shop, config)
    return Rates.load(shop.store.folder("rates", rates_inputs(config)) / "rates.safetensors")


def tuned(shop: Workshop, config: Config, method: Method, rates: Config | None) -> Chosen:
    """The method with the hyper-parameters that are best on source clients' validation data."""
    if not config.tune.clients or not method.grid():
        return Chosen(method, rates)

    def work(folder: Path) -> Result:
        source = evenly(shop.clients(config).population.source, config.tune.clients)
        with shop.watch(f"tuning {method.name}", "run") as advance:
            found = tune(
                method.name,
                None,
                model(shop, config),
                lambda candidate: knowledge(shop, config, candidate, rates),
                [client.validation() for client in source],
                batch_size=config.test.batch_size,
                workers=shop.workers,
                progress=advance,
            )
        return {"best": asdict(found.best), "table": found.table, "at_edge": found.at_edge}

    found = shop.store.get("tuning", tuning_inputs(config, method, rates), work)
    return Chosen(make(method.name, **found.pop("best")), rates, found)


def judged(shop: Workshop, config: Config, chosen: Chosen, progress: Progress | None = None) -> Figures:
    """How a method does at every target client; `progress` is told how many are done, of how many."""

    def work(folder: Path) -> Result:
        known = knowledge(shop, config, chosen.method, chosen.rates)
        found = compare(
            model(shop, config),
            evaluator(shop, config),
            [(chosen.method, known)],
            run_dir=folder,
            workers=shop.workers,
            progress=progress,
        )
        return {name: found.of(chosen.method.name, name) for name in FIGURES}

    found = shop.store.get("comparison", comparison_inputs(config, chosen.method, chosen.rates), work)
    # Earlier versions kept rows.
    return columns(found["rows"]) if "rows" in found else cast(Figures, found)


def evaluator(shop: Workshop, config: Config) -> Evaluator:
    """Who holds the labels of a case's target clients."""
    clients, answers, _ = shop.clients(config)
    return Evaluator(clients.target, answers, config.test.batch_size, config.test.order, config.seed)


def knowledge(shop: Workshop, config: Config, method: Method, learned_at: Config | None) -> Knowledge:
    """What a method knows from the source side."""
    known = {} if learned_at is None else {str(method.needs_rates): rates(shop, learned_at)}
    source = shop.clients(config).population.source
    summary = gather(method, model(shop, config), source, config.test.batch_size, shop.workers)
    return Knowledge(summary, known)


def described(federated: Federated) -> Described:
    """A population and its target clients as plain data, for results and reports."""
    clients, answers, manifest = federated
    described = Evaluator(clients.target, answers).described()
    checks = [
        "no image of a source client is in its training and in its validation data",
        f"the clients are those of the manifest with hash {manifest.digest[:12]}",
    ]
    if "shift" in manifest.setting:  # whoever brings clients of their own knows whose pictures are whose
        checks.insert(0, "no image belongs both to a source and to a target client")
    summary: Population = {
        "digest": manifest.digest,
        "name": clients.facts.name,
        "classes": list(clients.facts.classes),
        "source_clients": len(clients.source),
        "target_clients": len(described),
        "checks": checks,
    }
    return {"population": summary, "clients": described}


def modules_of(rates: Rates) -> list[Module]:
    """Every module with its rate, for results and reports."""
    values = rates.by_module()
    return [
        {"name": spec.name, "kind": spec.kind, "block": spec.block, "rate": float(values[spec.name])}
        for spec in rates.modules
    ]


def _take_over(file: Path, folder: Path) -> None:
    """A run that goes on replaces its result, so that a stage needs its own copy."""
    if file.parent != folder:
        shutil.copyfile(file, folder / file.name)
