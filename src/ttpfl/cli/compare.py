"""`ttpfl compare`: all methods at all target clients of a trained model's population."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.experiment import Workers
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.messages import say
from ttpfl.cli.options import Arch, DataDir, Json
from ttpfl.cli.output import answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttpfl.data.federate import Federated
    from ttpfl.methods.base import Method


def _file(help: str) -> Any:
    return typer.Option(help=help, dir_okay=False, show_default=False)


ModelFile = Annotated[
    Path, typer.Argument(help="Model file of `ttpfl train`.", dir_okay=False, show_default=False)
]
Out = Annotated[Path, typer.Option(help="Output folder for results.json.", file_okay=False)]
RatesFile = Annotated[Path | None, _file("Rates file of `ttpfl learn`, for ATP.")]
ParamsRates = Annotated[Path | None, _file("Rates file for ATP-params.")]
StatsRates = Annotated[Path | None, _file("Rates file for ATP-stats.")]
OtherClients = Annotated[
    Path | None, _file("Manifest of `ttpfl data make`, to compare on other clients than the model's own.")
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated methods. List them with `ttpfl methods`.",
        show_default="all that can be run",
        autocompletion=completion.method_list,
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Test batch size.")]
Order = Annotated[
    str,
    typer.Option(
        help="Order of a client's samples: iid (random), recorded, label-sorted or mixed.",
        autocompletion=completion.orders,
    ),
]
OrderSeed = Annotated[int, typer.Option(min=0, help="Random seed of the order.")]
TuneClients = Annotated[
    int,
    typer.Option(min=0, help="Number of source clients to tune hyper-parameters on. 0 uses the defaults."),
]


def compare(
    model_file: ModelFile,
    out: Out,
    rates: RatesFile = None,
    params_rates: ParamsRates = None,
    stats_rates: StatsRates = None,
    population: OtherClients = None,
    methods: Methods = None,
    batch_size: BatchSize = 20,
    order: Order = "iid",
    seed: OrderSeed = 0,
    workers: Workers = None,
    tune: TuneClients = 0,
    data_dir: DataDir = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    """Compare test-time methods on the target clients.

    If interrupted, rerun the command to resume.
    """
    from ttpfl.cli.federation import clients_of
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.experiment.config import Test
    from ttpfl.experiment.trial import Trial
    from ttpfl.rates import Rates
    from ttpfl.report.tables import lines_by_case, terminal_words

    test = Test(batch_size, order)  # checked before anything that takes long
    files = {"all": rates, "params": params_rates, "stats": stats_rates}
    named = _named(methods, files)
    model, card = trained_model(model_file, arch)
    building, preparing, comparing = numbered("building clients", "preparing methods", "comparing methods")
    clients = (
        clients_of(card, model_file, data_dir, out, building)
        if population is None
        else _other_clients(population, card, data_dir, building)
    )
    known = {kind: Rates.load(path, model=model) for kind, path in files.items() if path is not None}
    trial = Trial(model, clients, known, test, seed, workers)
    with progress(preparing, "method") as advance:
        prepared = trial.prepared(named, tune, advance, progress)
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


def _named(wanted: str | None, files: "Mapping[str, Path | None]") -> "list[Method]":
    """The methods to compare; where none were named, those whose rates are not given are left out."""
    from ttpfl.methods import make, names

    found = [make(name.strip()) for name in (wanted.split(",") if wanted else names())]
    lacking = [one for one in found if one.needs_rates is not None and files.get(one.needs_rates) is None]
    if wanted and lacking:
        kind = str(lacking[0].needs_rates)
        option = "--rates" if kind == "all" else f"--{kind}-rates"
        only = "" if kind == "all" else f" --only {kind}"
        raise typer.BadParameter(
            f"{lacking[0].name} needs learned rates: give {option}, the result of `ttpfl learn{only}`"
        )
    return [one for one in found if one not in lacking]
