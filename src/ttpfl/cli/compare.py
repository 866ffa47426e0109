"""`ttpfl compare`: all methods at all target clients of a trained model's population."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.messages import say
from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import Arch, DataDir, Json, ModelFile, Workers, file_option
from ttpfl.cli.output import answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttpfl.data.federate import Federated
    from ttpfl.methods.base import Method


@dataclass(frozen=True)
class RateFiles:
    """Learned rates, by the part of the network that they move."""

    rates: Annotated[Path | None, file_option("Rates file of `ttpfl learn`, for ATP.")] = None
    params_rates: Annotated[Path | None, file_option("Rates file for ATP-params.")] = None
    stats_rates: Annotated[Path | None, file_option("Rates file for ATP-stats.")] = None

    def by_kind(self) -> dict[str, Path]:
        """Those that are given."""
        files = {"all": self.rates, "params": self.params_rates, "stats": self.stats_rates}
        return {kind: path for kind, path in files.items() if path is not None}


@dataclass(frozen=True)
class TestOptions:
    """What is compared, and how target clients' streams come."""

    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated methods. List them with `ttpfl methods`.",
            show_default="all that can be run",
            autocompletion=completion.method_list,
        ),
    ] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Test batch size.")] = 20
    order: Annotated[
        str,
        typer.Option(
            help="Order of a client's samples: iid (random), recorded, label-sorted or mixed.",
            autocompletion=completion.orders,
        ),
    ] = "iid"
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the order.")] = 0
    tune: Annotated[
        int,
        typer.Option(
            min=0, help="Number of source clients to tune hyper-parameters on. 0 uses the defaults."
        ),
    ] = 0


@with_groups()
def compare(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="Output folder for results.json.", file_okay=False)],
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
    from ttpfl.evaluation.streams import ORDERS
    from ttpfl.experiment.config import Test
    from ttpfl.experiment.trial import Trial
    from ttpfl.report.tables import lines_by_case, terminal_words
    from ttpfl.util.settings_kit import check_known

    check_known("order", options.order, ORDERS, DataError)  # before anything that takes long
    test = Test(options.batch_size, options.order)
    files = rates.by_kind()
    named = _named(options.methods, files)
    model, card = trained_model(model_file, arch)
    building, preparing, comparing = numbered("building clients", "preparing methods", "comparing methods")
    clients = (
        clients_of(card, model_file, data_dir, out, building)
        if population is None
        else _other_clients(population, card, data_dir, building)
    )
    known = {kind: Rates.load(path, model=model) for kind, path in files.items()}
    trial = Trial(model, clients, known, test, options.seed, workers)
    with progress(preparing, "method") as advance:
        prepared = trial.prepared(named, options.tune, advance, progress)
    with resumable("rerun the command to resume"), progress(comparing, "evaluation") as advance:
        results = trial.results(prepared, out, card.get("trained", {}), advance)
    (lines,) = lines_by_case(results).values()
    path = out / "results.json"
    last = f"{path} written; `ttpfl report {out}` makes a page of it"
    answer({"results": path, "methods": lines}, *terminal_words(results), last, as_json=json)


def _other_clients(manifest: Path, card: "dict[str, Any]", data_dir: Path | None, title: str) -> "Federated":
    """Clients that a manifest describes, built again; `title` is what whoever waits is told."""
    from ttpfl.cli.progress import progress
    from ttpfl.data.federate import load_population

    with progress(title, "client"):
        clients = load_population(manifest, data_dir=data_dir)
    if clients.manifest.digest != card.get("population"):
        said = "the model was not trained for these clients: it may have seen images of target clients"
        say(f"note: {said}")
    return clients


def _named(wanted: str | None, files: "Mapping[str, Path]") -> "list[Method]":
    """The methods to compare; where none were named, those whose rates are not given are left out."""
    from ttpfl.methods import make, names

    found = [make(name.strip()) for name in (wanted.split(",") if wanted else names())]
    lacking = [one for one in found if one.needs_rates is not None and one.needs_rates not in files]
    if wanted and lacking:
        kind = str(lacking[0].needs_rates)
        option = "--rates" if kind == "all" else f"--{kind}-rates"
        only = "" if kind == "all" else f" --only {kind}"
        raise typer.BadParameter(
            f"{lacking[0].name} needs learned rates: give {option}, the result of `ttpfl learn{only}`"
        )
    return [one for one in found if one not in lacking]
