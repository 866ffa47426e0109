"""A run with one case whose model and rates are there already: what `ttpfl compare` computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ttpfl.data.clients import evenly
from ttpfl.data.federate import Federated
from ttpfl.data.parallel import Progress
from ttpfl.evaluation import Comparison, Evaluator, compare, gather
from ttpfl.experiment.config import Test
from ttpfl.experiment.provenance import machine, versions
from ttpfl.experiment.stages import described, modules_of
from ttpfl.experiment.workshop import Watch, unwatched
from ttpfl.federation.progress import Advance
from ttpfl.methods import Knowledge, Method
from ttpfl.methods.tuning import tune
from ttpfl.rates import Rates
from ttpfl.results.files import RESULTS
from ttpfl.results.schema import Results, Tuning


@dataclass(frozen=True)
class Prepared:
    """A method with its hyper-parameters, what it knows from the source side, and how it was tuned."""

    method: Method
    knowledge: Knowledge
    tuning: Tuning | None


@dataclass(frozen=True, eq=False)
class SingleCase:
    """A trained model and clients to compare methods on.

    Args:
        model: in evaluation mode; it is not changed.
        clients: whose target clients are the test.
        rates: learned rates: "all", "params", "stats".
        test: how the target clients' streams come.
        seed: of the streams' order.
        trained: how the model was trained, for the report.
        workers: processes; one per core if None.
    """

    model: nn.Module
    clients: Federated
    rates: Mapping[str, Rates]
    test: Test
    seed: int = 0
    trained: Mapping[str, Any] | None = None
    workers: int | None = None

    def prepared(
        self, methods: Sequence[Method], tune_clients: int, advance: Advance, watch: Watch = unwatched
    ) -> list[Prepared]:
        """Ask source clients what the methods need; tune those with a grid on `tune_clients` of them."""
        found = []
        for number, method in enumerate(methods, start=1):
            best, tuning = self._tuned(method, tune_clients, watch)
            found.append(Prepared(best, self._knowledge(best), tuning))
            advance(number, len(methods), method.name)
        return found

    def compared(self, prepared: Sequence[Prepared], out: Path, progress: Progress) -> Results:
        """Run the methods over the target clients, and write `results.json` into `out`.

        Interrupted at any point, it goes on there when it is called again.
        """
        clients, answers, manifest = self.clients
        evaluator = Evaluator(clients.target, answers, self.test.batch_size, self.test.order, self.seed)
        methods = [(one.method, one.knowledge) for one in prepared]
        run = compare(
            self.model, evaluator, methods, run_dir=out, workers=self.workers, progress=progress
        ).run
        run["population"] = described(self.clients)["population"]
        for entry, one in zip(run["entries"], prepared, strict=True):
            entry["tuning"] = one.tuning
            if (kind := one.method.needs_rates) is not None:
                entry["rates"] = {"modules": modules_of(self.rates[kind]), "history": []}
        run["config"] |= {
            "data.name": manifest.data["name"],
            "data.options": manifest.data["options"],
            **{f"data.{key}": value for key, value in manifest.setting.items()},
            **{f"train.{key}": value for key, value in (self.trained or {}).items()},
        }
        title = f"Test-time methods on {run['population']['name']}"
        return Comparison(run).save(out / RESULTS, title, {**versions(), "machine": machine()})

    def _knowledge(self, method: Method) -> Knowledge:
        source = self.clients.population.source
        return Knowledge(gather(method, self.model, source, self.test.batch_size, self.workers), self.rates)

    def _tuned(self, method: Method, clients: int, watch: Watch) -> tuple[Method, Tuning | None]:
        if not clients or not method.grid():
            return method, None
        streams = [client.validation() for client in evenly(self.clients.population.source, clients)]
        with watch(f"tuning {method.name}", "run") as advance:
            found = tune(
                method.name, None, self.model, self._knowledge, streams,
                batch_size=self.test.batch_size, workers=self.workers, progress=advance,
            )  # fmt: skip
        return found.best, {"table": found.table, "at_edge": found.at_edge}
