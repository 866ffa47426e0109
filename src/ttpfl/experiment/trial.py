"""Tuning and comparing methods on a trained model, also for `ttpfl compare`."""

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
    """A method with its information from source clients and its tuning."""

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
        """The evaluator of the target clients."""
        population, labels, _ = self.clients
        return Evaluator(population.target, labels, self.test.batch_size, self.test.order, self.seed)

    def source_info(self, method: Method) -> SourceInfo:
        """A method's information from source clients."""
        source = self.clients.population.source
        return SourceInfo(gather(method, self.model, source, self.test.batch_size, self.workers), self.rates)

    def tuned(self, method: Method, clients: int, watch: Watch) -> tuple[Method, Tuning]:
        """Tune a method on the validation data of this many source clients."""
        streams = [client.validation() for client in evenly(self.clients.population.source, clients)]
        with watch(f"tuning {method.name}", "run") as advance:
            result = tune(
                method.name, None, self.model, self.source_info, streams,
                batch_size=self.test.batch_size, workers=self.workers, progress=advance,
            )  # fmt: skip
        return result.best, {"table": result.table, "at_edge": result.at_edge}

    def prepared(
        self, methods: Sequence[Method], tune_clients: int, advance: Advance, watch: Watch
    ) -> list[Prepared]:
        """Tune methods that have a grid, unless `tune_clients` is 0, and gather summaries."""
        prepared = []
        for number, method in enumerate(methods, start=1):
            tuned = tune_clients and method.grid()
            best, tuning = self.tuned(method, tune_clients, watch) if tuned else (method, None)
            prepared.append(Prepared(best, self.source_info(best), tuning))
            advance(number, len(methods), method.name)
        return prepared

    def compared(self, methods: Sequence[Prepared], folder: Path, progress: Progress | None) -> Comparison:
        """Compare methods on the target clients; the folder keeps rows of an interrupted comparison."""
        pairs = [(prepared.method, prepared.source_info) for prepared in methods]
        return compare(
            self.model, self.evaluator, pairs, run_dir=folder, workers=self.workers, progress=progress
        )

    def results(
        self, methods: Sequence[Prepared], out: Path, trained: Mapping[str, Any], progress: Progress
    ) -> Results:
        """Compare and write `results.json` with one case; `trained` has the settings of training."""
        run, manifest = self.compared(methods, out, progress).run, self.clients.manifest
        run["population"] = described(self.clients)["population"]
        for entry, prepared in zip(run["entries"], methods, strict=True):
            entry["tuning"] = prepared.tuning
            if (kind := prepared.method.needs_rates) is not None:
                entry["rates"] = {"modules": modules_of(self.rates[kind]), "history": []}
        data = {"name": manifest.data["name"], "options": manifest.data["options"], **manifest.config}
        run["config"] |= {f"data.{key}": value for key, value in data.items()}
        run["config"] |= {f"train.{key}": value for key, value in trained.items()}
        title = f"Test-time methods on {run['population']['name']}"
        return Comparison(run).save(out / RESULTS, title, {**versions(), "machine": machine()})


def described(federated: Federated) -> dict[str, Any]:
    """The population and its target clients as plain data, for results."""
    clients, labels, manifest = federated
    target = Evaluator(clients.target, labels).described()
    checks = [
        f"no {'sample' if clients.info.shape else 'image'} of a source client is in its training and in its "
        "validation data",
        f"the clients are those of the manifest with hash {manifest.digest[:12]}",
    ]
    if "shift" in manifest.config:  # not for the user's own clients
        checks.insert(0, "no image belongs both to a source and to a target client")
    if "folds" in manifest.config:
        checks.insert(0, "no client is both a source and a target client")
    summary = {
        "digest": manifest.digest,
        "name": clients.info.name,
        "classes": list(clients.info.classes),
        "source_clients": len(clients.source),
        "target_clients": len(target),
        "checks": checks,
    }
    return {"population": summary, "clients": target}


def modules_of(rates: Rates) -> list[Module]:
    """Every module with its rate, for results."""
    values = rates.by_module()
    return [
        {"name": spec.name, "kind": spec.kind, "block": spec.block, "rate": float(values[spec.name])}
        for spec in rates.modules
    ]
