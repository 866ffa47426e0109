"""`ttpfl bound`: the paper's bounds, for given numbers or for a trained model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ttpfl.cli.bound_numbers import CONVERGENCE, Numbers
from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import DataDir, Json, file_option, option
from ttpfl.cli.output import print_result
from ttpfl.errors import TheoryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttpfl.data.clients import SourceClient
    from ttpfl.util.parallel import Progress

BATCH_SIZE = 20


@with_groups({"Convergence (needs all of these, N and H)": " ".join(CONVERGENCE)})
def bound(
    numbers: Numbers,
    model: Annotated[
        Path | None, file_option("Model file of `ttpfl train`. Gives N, K and d, and H by measuring it.")
    ] = None,
    rates: Annotated[Path | None, file_option("Rates file of --model; gives d, H and R.")] = None,
    clients: Annotated[int | None, option("Source clients to measure H on.", "all", min=1)] = None,
    batch_size: Annotated[int | None, option("Batch size for measuring H.", str(BATCH_SIZE), min=1)] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Evaluate the generalisation and convergence bounds.

    Explicit values override the model's.
    """
    from ttpfl.cli.bound_numbers import completed, evaluated
    from ttpfl.cli.bound_tables import bound_tables

    if model is None and clients is not None:
        raise TheoryError("--clients is for measuring H, which needs --model; source clients are --clients-n")
    if model is None and batch_size is not None:
        raise TheoryError("--batch-size is for measuring H, which needs --model; batches are --batches-k")
    if model is None and rates is not None:
        raise TheoryError("--rates needs --model, the model that they were learned for")
    measured: dict[str, Any] = {}
    longest, notes = None, []
    if model is not None:
        measured, longest = _measured(model, rates, clients, batch_size or BATCH_SIZE, data_dir)
        notes = [
            f"H is the norm of the direction of {longest['module']}, the longest on validation data of "
            f"{longest['clients']} source clients in batches of {longest['batch_size']}; "
            "other batches may have longer ones."
        ]
    numbers, origins = completed(numbers, measured)
    bounds = evaluated(numbers)
    content = {"numbers": vars(numbers), "origins": origins, "longest_direction": longest, **bounds}
    print_result(content, *bound_tables(numbers, origins, bounds), *notes, as_json=json)


def _measured(
    model_file: Path, rates_file: Path | None, limit: int | None, batch_size: int, data_dir: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """N, K, d and H of a model and its source clients, R of its rates, and where H was measured."""
    from ttpfl.cli.federation import clients_of
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.core.direction_norms import direction_norms
    from ttpfl.core.rates import Rates
    from ttpfl.data.clients import evenly
    from ttpfl.models import load_model

    building, measuring = numbered("building clients", "measuring directions")
    network, card = load_model(model_file)
    source = clients_of(card, model_file, data_dir, None, building).population.source
    chosen = evenly(source, limit or len(source))
    with progress(measuring, "client") as advance:
        rates = None if rates_file is None else Rates.load(rates_file, model=network)
        norms = direction_norms(network, _batches(chosen, batch_size, advance), rates)
    longest = max(norms, key=norms.__getitem__)
    values = {
        "clients_n": len(source),
        "batches_k": min(max(1, client.size("validation") // batch_size) for client in source),
        "modules_d": len(norms),
        "direction_h": norms[longest],
        **({} if rates is None else {"radius_r": float(rates.values.norm())}),
    }
    return values, {"module": longest, "clients": len(chosen), "batch_size": batch_size}


def _batches(clients: "Sequence[SourceClient]", batch_size: int, advance: "Progress") -> "Iterator[Any]":
    from ttpfl.core.inputs import client_batches

    for number, client in enumerate(clients, start=1):
        yield from client_batches(client.validation(), batch_size)
        advance(number, len(clients))
