"""`ttpfl compare`: all methods at all target clients of a trained model's population."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.messages import say
from ttpfl.cli.options import Arch, DataDir, Json
from ttpfl.cli.output import answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from ttpfl.data.clients import SourceClient
    from ttpfl.data.federate import Federated
    from ttpfl.federation.progress import Advance
    from ttpfl.methods.base import Knowledge, Method
    from ttpfl.rates import Rates


def compare(
    model_file: Annotated[
        Path, typer.Argument(help="Model file of `ttpfl train`.", dir_okay=False, show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Output folder for results.json.", file_okay=False)],
    rates: Annotated[
        Path | None,
        typer.Option(help="Rates file of `ttpfl learn`, for ATP.", dir_okay=False, show_default=False),
    ] = None,
    params_rates: Annotated[
        Path | None, typer.Option(help="Rates file for ATP-params.", dir_okay=False, show_default=False)
    ] = None,
    stats_rates: Annotated[
        Path | None, typer.Option(help="Rates file for ATP-stats.", dir_okay=False, show_default=False)
    ] = None,
    population: Annotated[
        Path | None,
        typer.Option(
            help="Manifest of `ttpfl data make`, to compare on other clients than the model's own.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated methods. List them with `ttpfl methods`.",
            show_default="all that can be run",
            autocompletion=completion.method_list,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Test batch size.")] = 20,
    order: Annotated[
        str,
        typer.Option(
            help="Order of a client's samples: iid (random), recorded, label-sorted or mixed.",
            autocompletion=completion.orders,
        ),
    ] = "iid",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the order.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of worker processes.", show_default="one per core")
    ] = None,
    tune: Annotated[
        int,
        typer.Option(
            min=0, help="Number of source clients to tune hyper-parameters on. 0 uses the defaults."
        ),
    ] = 0,
    data_dir: DataDir = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    """Compare test-time methods on the target clients.

    If interrupted, rerun the command to resume.
    """
    from ttpfl.cli.federation import clients_of
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.errors import DataError
    from ttpfl.evaluation import Evaluator
    from ttpfl.evaluation import compare as run
    from ttpfl.evaluation.streams import ORDERS
    from ttpfl.evaluation.summary import lines
    from ttpfl.rates import Rates
    from ttpfl.report.terminal import methods_words
    from ttpfl.settings_kit import check_known

    check_known("order", order, ORDERS, DataError)  # before anything that takes long
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
    with progress(preparing, "method") as advance:
        source = clients.population.source
        chosen, tuning = _prepared(named, model, known, source, batch_size, workers, tune, advance)
    evaluator = Evaluator(clients.population.target, clients.answers, batch_size, order, seed)
    with resumable("rerun the command to resume"), progress(comparing, "evaluation") as advance:
        found = run(model, evaluator, chosen, run_dir=out, workers=workers, progress=advance)
    results = out / "results.json"
    found.save(results, tuning=tuning)
    each = lines(found)
    words = methods_words(each, len(evaluator.clients()))
    answer({"results": results, "methods": each}, *words, f"{results} written", as_json=json)


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


def _prepared(
    named: "Sequence[Method]",
    model: "nn.Module",
    rates: "Mapping[str, Rates]",
    source: "Sequence[SourceClient]",
    batch_size: int,
    workers: int | None,
    clients: int,
    advance: "Advance",
) -> "tuple[list[tuple[Method, Knowledge]], dict[str, Any]]":
    """The methods with what they know, and how they were tuned."""
    from ttpfl.cli.progress import progress
    from ttpfl.data.clients import evenly
    from ttpfl.evaluation import gather
    from ttpfl.methods import Knowledge
    from ttpfl.methods.tuning import tune

    def known(method: "Method") -> Knowledge:
        return Knowledge(gather(method, model, source, batch_size, workers), rates)

    chosen, tuning = [], {}
    for number, one in enumerate(named, start=1):
        if clients and one.grid():
            streams = [client.validation() for client in evenly(source, clients)]
            with progress(f"tuning {one.name}", "run") as tried:
                tuned = tune(
                    one.name, None, model, known, streams,
                    batch_size=batch_size, workers=workers, progress=tried,
                )  # fmt: skip
            one, tuning[one.name] = tuned.best, {"table": tuned.table, "at_edge": tuned.at_edge}
        chosen.append((one, known(one)))
        advance(number, len(named), one.name)
    return chosen, tuning
