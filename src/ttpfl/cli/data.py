"""`ttpfl data`: which data there is, what its clients are like, and populations to keep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli.options import DataDir, HeldOut, Name, Options, Picture, Seed, Sets, Shift
from ttpfl.cli.values import merged, options

if TYPE_CHECKING:
    from ttpfl.data.federate import Federated

app = typer.Typer(help="Data sets, clients over them, and image corruptions.", no_args_is_help=True)


@app.command("list")
def list_(data_dir: DataDir = None) -> None:
    """All data sets, and which of them are in the data directory."""
    from ttpfl.cli.printing import print_table
    from ttpfl.cli.tables import data_sets
    from ttpfl.data.registry import data_directory

    print_table(data_sets(data_dir))
    typer.echo(f"data directory: {data_directory(data_dir)}")


@app.command()
def info(name: Name, data_dir: DataDir = None) -> None:
    """Everything that is known about a data set without loading it."""
    from ttpfl.cli.printing import print_table
    from ttpfl.cli.tables import data_set

    print_table(data_set(name, data_dir))


@app.command()
def download(name: Name, data_dir: DataDir = None, option: Options = None) -> None:
    """Download a data set from its makers, unless it is there, and check that it can be loaded."""
    from ttpfl.data.registry import data_directory, load

    found = load(name, data_dir, download=True, **options(option or ()))
    typer.echo(f"{found} is in {data_directory(data_dir)}")


@app.command()
def show(
    name: Name,
    shift: Shift = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    set_: Sets = None,
    option: Options = None,
    data_dir: DataDir = None,
    out: Picture = Path("clients.png"),
) -> None:
    """A picture of clients: images of some of them, and how often each of them has each class."""
    from ttpfl.data.show import show as draw

    draw(_federate(name, shift, held_out, seed, set_, option, data_dir), out)
    typer.echo(f"{out} written")


@app.command()
def corruptions(
    name: Name = "digits",
    image: Annotated[
        int | None, typer.Option(min=0, help="Which image of the data set.", show_default="the middle one")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the corruptions' random numbers.")] = 0,
    option: Options = None,
    data_dir: DataDir = None,
    out: Picture = Path("corruptions.png"),
) -> None:
    """A picture of all corruptions at their five severities."""
    from ttpfl.data.extras import extra
    from ttpfl.data.images import Images
    from ttpfl.data.registry import load
    from ttpfl.errors import DataError

    found = load(name, data_dir, **options(option or ()))
    images = found.x if isinstance(found, Images) else next(iter(found.source.values())).x
    number = len(images) // 2 if image is None else image
    if number >= len(images):
        raise DataError(f"--image is {image}, but {name} has {len(images)} images: 0 to {len(images) - 1}")
    extra("ttpfl.data.corruptions.sheet").contact_sheet(images[number], out, seed)
    typer.echo(f"{out} written")


@app.command()
def make(
    name: Name,
    out: Annotated[
        Path, typer.Option(help="The manifest: written, or compared with if it is there.", dir_okay=False)
    ],
    shift: Shift = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    set_: Sets = None,
    option: Options = None,
    data_dir: DataDir = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Corrupt all images now, and keep them in the cache.")
    ] = False,
) -> None:
    """Build clients, and write down what they are made of."""
    from ttpfl.cli.progress import progress

    was_there = out.exists()
    with progress("corrupting images") as advance:
        made = _federate(
            name, shift, held_out, seed, set_, option, data_dir,
            manifest=out, prepare=prepare, progress=advance,
        )  # fmt: skip
    typer.echo(f"{out} {'verified' if was_there else 'written'}: {_summary(made)}")


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(help="What `ttpfl data make` wrote.", show_default=False)],
    data_dir: DataDir = None,
) -> None:
    """Build the clients of a manifest again, and compare."""
    from ttpfl.data.federate import load_population

    typer.echo(f"{manifest} verified: {_summary(load_population(manifest, data_dir=data_dir))}")


def _federate(
    name: str,
    shift: str | None,
    held_out: str | None,
    seed: int | None,
    sets: list[str] | None,
    option: list[str] | None,
    data_dir: Path | None,
    **how: Any,
) -> "Federated":
    from ttpfl.data.federate import federate

    choices = merged({"shift": shift, "held_out": held_out, "seed": seed}, sets or ())
    return federate(name, data_dir=data_dir, options=options(option or ()), **how, **choices)


def _summary(made: "Federated") -> str:
    population = made.population
    return (
        f"{population.facts.name}, {len(population.source)} source clients, "
        f"{len(population.target)} target clients, digest {made.manifest.digest[:16]}"
    )
