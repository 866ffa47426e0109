"""`ttpfl compare`: all methods on all target clients of a trained model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.messages import say
from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import Arch, DataDir, Json, ModelFile, Workers, file_option, option
from ttpfl.cli.output import print_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttpfl.data.federate import Federated
    from ttpfl.methods.base import Method


@dataclass(frozen=True)
class RateFiles:
    """Learned rates, by the part of the network they move."""

    rates: Annotated[
        Path | None, file_option("Rates file of `ttpfl learn`, for atp-batch and atp-online.")
    ] = None
    params_rates: Annotated[Path | None, file_option("Rates of learnable tensors, for atp-params.")] = None
    stats_rates: Annotated[Path | None, file_option("Rates of running statistics, for atp-stats.")] = None

    def by_kind(self) -> dict[str, Path]:
        """The given files, by kind of rates."""
        files = {"all": self.rates, "params": self.params_rates, "stats": self.stats_rates}
        return {kind: path for kind, path in files.items() if path is not None}


@dataclass(frozen=True)
class TestOptions:
    """What to compare, and how target clients stream their samples."""

    methods: Annotated[
        str | None,
        option(
            "Comma-separated methods. List them with `ttpfl methods`.",
            "all that can be run",
            completion.method_list,
        ),
    ] = None
    batch_size: Annotated[int, option("Batch size, as in `ttpfl learn`.", min=1)] = 20
    order: Annotated[
        str,
        option(
            "Order of a client's samples: iid (random), recorded, label-sorted or mixed; or "
            "one stream of all clients: continual, gradual, mixed-clients or recurring.",
            complete=completion.orders,
        ),
    ] = "iid"
    seed: Annotated[int, option("Random seed of the order of samples.", min=0)] = 0
    tune: Annotated[
        int, option("Number of source clients to tune hyper-parameters on. 0 uses the defaults.", min=0)
    ] = 0


@with_groups()
def compare(
    model_file: ModelFile,
    out: Annotated[Path, option("Output folder for results.json.", file_okay=False)],
    rates: RateFiles,
    options: TestOptions,
    population: Annotated[
        Path | None,
        file_option("Manifest of `ttpfl data make`, to compare on other clients than the model's own."),
    ] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    """Compare test-time methods on the target clients.

    If interrupted, rerun the command to resume.
    """
    from ttpfl.cli.federation import clients_of
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.core.rates import Rates
    from ttpfl.errors import DataError
    from ttpfl.evaluation.streams import ALL_ORDERS
    from ttpfl.experiment.config import Test
    from ttpfl.experiment.trial import Trial
    from ttpfl.report.tables import lines_by_case, terminal_words
    from ttpfl.util.settings_kit import check_known

    check_known("order", options.order, ALL_ORDERS, DataError)  # before anything that takes long
    test = Test(options.batch_size, options.order)
    files = rates.by_kind()
    methods = _methods(options.methods, files)
    model, card = trained_model(model_file, arch)
    building, preparing, comparing = numbered("building clients", "preparing methods", "comparing methods")
    clients = (
        clients_of(card, model_file, data_dir, out, building)
        if population is None
        else _other_clients(population, card, data_dir, building)
    )
    learned = {kind: Rates.load(path, model=model) for kind, path in files.items()}
    trial = Trial(model, clients, learned, test, options.seed, workers)
    with progress(preparing, "method") as advance:
        prepared = trial.prepared(methods, options.tune, advance, progress)
    with resumable("rerun the command to resume"), progress(comparing, "evaluation") as advance:
        results = trial.results(prepared, out, card.get("trained", {}), advance)
    (lines,) = lines_by_case(results).values()
    path = out / "results.json"
    last = f"{path} written; `ttpfl report {out}` turns it into a page"
    print_result({"results": path, "methods": lines}, *terminal_words(results), last, as_json=json)


def _other_clients(manifest: Path, card: "dict[str, Any]", data_dir: Path | None, title: str) -> "Federated":
    """Rebuild the clients of a manifest; `title` is that of the progress display."""
    from ttpfl.cli.progress import progress
    from ttpfl.data.federate import load_population

    with progress(title, "client"):
        clients = load_population(manifest, data_dir=data_dir)
    if clients.manifest.digest != card.get("population"):
        say("note: the model was not trained for these clients: it may have seen images of target clients")
    return clients


def _methods(listed: str | None, files: "Mapping[str, Path]") -> "list[Method]":
    """The listed methods, or by default all except those whose rates are missing."""
    from ttpfl.methods import make, names

    methods = [make(name.strip()) for name in (listed.split(",") if listed else names())]
    lacking = [one for one in methods if one.needs_rates is not None and one.needs_rates not in files]
    if listed and lacking:
        kind = str(lacking[0].needs_rates)
        option = "--rates" if kind == "all" else f"--{kind}-rates"
        only = "" if kind == "all" else f" --only {kind}"
        raise typer.BadParameter(
            f"{lacking[0].name} needs learned rates: give {option}, the result of `ttpfl learn{only}`"
        )
    return [method for method in methods if method not in lacking]
