"""`ttpfl data`: data sets, client populations and corruptions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import ClientOptions, DataDir, Json, Name, Options, Picture, Seed, argument, flag
from ttpfl.cli.options import option as as_option
from ttpfl.cli.output import print_result
from ttpfl.cli.values import options

if TYPE_CHECKING:
    from ttpfl.data.federate import Federated

app = typer.Typer(help="Manage data sets, client populations and image corruptions.", no_args_is_help=True)


@app.command("list")
def list_(data_dir: DataDir = None, json: Json = False) -> None:
    """List data sets, and which of them are in the data directory."""
    from ttpfl.cli.tables import data_set_info, data_sets_table
    from ttpfl.data.registry import data_directory, names

    info = [data_set_info(name, data_dir) for name in names()]
    where = f"data directory: {data_directory(data_dir)}"
    print_result(info, data_sets_table(data_dir), where, as_json=json)


@app.command()
def info(name: Name, data_dir: DataDir = None, json: Json = False) -> None:
    """Show what is known about a data set without loading it."""
    from ttpfl.cli.tables import data_set_info, data_set_table

    print_result(data_set_info(name, data_dir), data_set_table(name, data_dir), as_json=json)


@app.command()
def download(name: Name, data_dir: DataDir = None, option: Options = None) -> None:
    """Download a data set if it is missing, and load it to check it."""
    from ttpfl.data.registry import data_directory, load

    images = load(name, data_dir, download=True, **options(option or ()))
    typer.echo(f"{images} is in {data_directory(data_dir)}")


@app.command()
@with_groups()
def show(name: Name, clients: ClientOptions, seed: Seed = None, out: Picture = Path("clients.png")) -> None:
    """Plot clients: some samples and class counts."""
    from ttpfl.data.show import show as draw

    draw(_federate(name, clients, seed), out)
    typer.echo(f"{out} written")


@app.command()
def corruptions(
    name: Name = "digits",
    image: Annotated[int | None, as_option("Index of the image.", "the middle one", min=0)] = None,
    seed: Annotated[int, as_option("Random seed of the corruptions.", min=0)] = 0,
    option: Options = None,
    data_dir: DataDir = None,
    out: Picture = Path("corruptions.png"),
) -> None:
    """Plot all corruptions at their five severities."""
    import numpy as np

    from ttpfl.data.extras import extra
    from ttpfl.data.registry import first_samples, load
    from ttpfl.errors import DataError

    loaded = load(name, data_dir, **options(option or ()))
    if loaded.info.shape:
        raise DataError(f"the samples of {name} are no images: only images can be corrupted")
    images = first_samples(loaded)
    number = len(images) // 2 if image is None else image
    if number >= len(images):
        raise DataError(f"--image is {image}, but {name} has {len(images)} images: 0 to {len(images) - 1}")
    extra("ttpfl.data.corruptions.sheet").contact_sheet(np.asarray(images)[number], out, seed)
    typer.echo(f"{out} written")


@app.command()
@with_groups()
def make(
    name: Name,
    out: Annotated[
        Path, as_option("Manifest file. Written if it is missing, otherwise compared.", dir_okay=False)
    ],
    clients: ClientOptions,
    seed: Seed = None,
    prepare: Annotated[bool, flag("--prepare", "Corrupt all images now and cache them.")] = False,
    json: Json = False,
) -> None:
    """Build a client population and write its manifest."""
    from ttpfl.cli.progress import progress

    was_there = out.exists()
    with progress("corrupting images", "client", patient=True) as advance:
        federated = _federate(name, clients, seed, manifest=out, prepare=prepare, progress=advance)
    _report(out, "verified" if was_there else "written", federated, json)


@app.command()
def check(
    manifest: Annotated[Path, argument("Manifest file of `ttpfl data make`.")],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Rebuild the population of a manifest and verify it."""
    from ttpfl.data.federate import load_population

    _report(manifest, "verified", load_population(manifest, data_dir=data_dir), json)


def _federate(name: str, clients: ClientOptions, seed: int | None, **how: Any) -> "Federated":
    from ttpfl.data.federate import federate

    data = clients.description(name, seed)
    return federate(name, data_dir=clients.data_dir, options=data["options"], **how, **data["choices"])


def _report(manifest: Path, done: str, federated: "Federated", as_json: bool) -> None:
    population = federated.population
    info = {
        "manifest": manifest,
        "done": done,
        "name": population.info.name,
        "source_clients": len(population.source),
        "target_clients": len(population.target),
        "digest": federated.manifest.digest,
    }
    clients = "{source_clients} source clients, {target_clients} target clients"
    text = f"{{manifest}} {{done}}: {{name}}, {clients}, digest {{digest:.16}}".format(**info)
    print_result(info, text, as_json=as_json)
