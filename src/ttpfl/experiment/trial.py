"""Tuning and comparing methods on a trained model, and `ttpfl compare`: a run with one case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ttpfl.core.rates import Rates
from ttpfl.data.clients import evenly
from ttpfl.data.federate import Federated
from ttpfl.evaluation import Comparison, Evaluator, compare, gather
from ttpfl.experiment.config import Test
from ttpfl.experiment.context import Watch
from ttpfl.experiment.provenance import machine, versions
from ttpfl.federation.checkpoints.progress import Advance
from ttpfl.methods import Method, SourceInfo
from ttpfl.methods.tuning import tune
from ttpfl.results.files import RESULTS
from ttpfl.results.schema import Module, Results, Tuning
from ttpfl.util.parallel import Progress


@dataclass(frozen=True)
class Prepared:
    """A method with its hyper-parameters, what it knows from the source side, and how it was tuned."""

    method: Method
    source_info: SourceInfo
    tuning: Tuning | None = None


@dataclass(frozen=True, eq=False)
class Trial:
    """A trained model, clients to test methods on, and learned rates ("all", "params" or "stats")."""

    model: nn.Module
    clients: Federated
    rates: Mapping[str, Rates]
    test: Test
    seed: int
    workers: int | None

    @property
    def evaluator(self) -> Evaluator:
        """Who holds the labels of the target clients."""
        people, answers, _ = self.clients
        return Evaluator(people.target, answers, self.test.batch_size, self.test.order, self.seed)

    def source_info(self, method: Method) -> SourceInfo:
        """What a method knows from the source side."""
        source = self.clients.population.source
        return SourceInfo(gather(method, self.model, source, self.test.batch_size, self.workers), self.rates)

    def tuned(self, method: Method, clients: int, watch: Watch) -> tuple[Method, Tuning]:
        """The method with the hyper-parameters that are best on so many source clients' validation data."""
        streams = [client.validation() for client in evenly(self.clients.population.source, clients)]
        with watch(f"tuning {method.name}", "run") as advance:
            found = tune(
                method.name, None, self.model, self.source_info, streams,
                batch_size=self.test.batch_size, workers=self.workers, progress=advance,
            )  # fmt: skip
        return found.best, {"table": found.table, "at_edge": found.at_edge}

    def prepared(
        self, methods: Sequence[Method], tune_clients: int, advance: Advance, watch: Watch
    ) -> list[Prepared]:
        """Tune the methods that have a grid, if there are clients for that, and ask for what methods need."""
        found = []
        for number, method in enumerate(methods, start=1):
            tuned = tune_clients and method.grid()
            best, tuning = self.tuned(method, tune_clients, watch) if tuned else (method, None)
            found.append(Prepared(best, self.source_info(best), tuning))
            advance(number, len(methods), method.name)
        return found

    def compared(self, methods: Sequence[Prepared], folder: Path, progress: Progress | None) -> Comparison:
        """Run methods over the target clients; interrupted, it goes on with what is in the folder."""
        pairs = [(one.method, one.source_info) for one in methods]
        return compare(
            self.model, self.evaluator, pairs, run_dir=folder, workers=self.workers, progress=progress
        )

    def results(
        self, methods: Sequence[Prepared], out: Path, trained: Mapping[str, Any], progress: Progress
    ) -> Results:
        """The same as a run with one case, written to `results.json`; `trained` says how the model was."""
        run, manifest = self.compared(methods, out, progress).run, self.clients.manifest
        run["population"] = described(self.clients)["population"]
        for entry, one in zip(run["entries"], methods, strict=True):
            entry["tuning"] = one.tuning
            if (kind := one.method.needs_rates) is not None:
                entry["rates"] = {"modules": modules_of(self.rates[kind]), "history": []}
        data = {"name": manifest.data["name"], "options": manifest.data["options"], **manifest.config}
        run["config"] |= {f"data.{key}": value for key, value in data.items()}
        run["config"] |= {f"train.{key}": value for key, value in trained.items()}
        title = f"Test-time methods on {run['population']['name']}"
        return Comparison(run).save(out / RESULTS, title, {**versions(), "machine": machine()})


def described(federated: Federated) -> dict[str, Any]:
    """A population and its target clients as plain data, for results and reports."""
    clients, answers, manifest = federated
    people = Evaluator(clients.target, answers).described()
    checks = [
        "no image of a source client is in its training and in its validation data",
        f"the clients are those of the manifest with hash {manifest.digest[:12]}",
    ]
    if "shift" in manifest.config:  # whoever brings clients of their own knows whose pictures are whose
        checks.insert(0, "no image belongs both to a source and to a target client")
    summary = {
        "digest": manifest.digest,
        "name": clients.info.name,
        "classes": list(clients.info.classes),
        "source_clients": len(clients.source),
        "target_clients": len(people),
        "checks": checks,
    }
    return {"population": summary, "clients": people}


def modules_of(rates: Rates) -> list[Module]:
    """Every module with its rate, for results and reports."""
    values = rates.by_module()
    return [
        {"name": spec.name, "kind": spec.kind, "block": spec.block, "rate": float(values[spec.name])}
        for spec in rates.modules
    ]
