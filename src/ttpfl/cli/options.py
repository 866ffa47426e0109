"""Options that several commands share."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.help_pages import HelpMore
from ttpfl.cli.values import merged, options


def file_option(help: str, **more: Any) -> Any:
    """An option that is a file."""
    return typer.Option(help=help, dir_okay=False, show_default=False, **more)


def folder_option(help: str, **more: Any) -> Any:
    """An option that is a folder."""
    return typer.Option(help=help, file_okay=False, show_default=False, **more)


def pair_option(name: str, help: str) -> Any:
    """An option for KEY=VALUE that may be repeated."""
    return typer.Option(name, metavar="KEY=VALUE", help=f"{help} Repeatable.", show_default=False)


def _data_set(help: str) -> Any:
    return typer.Argument(help=help, show_default=False, autocompletion=completion.data_sets)


Name = Annotated[str, _data_set("Data set name (see `ttpfl data list`).")]
NameOrNone = Annotated[
    str | None, _data_set("Data set name (see `ttpfl data list`). Omit with --engine flower.")
]
ModelFile = Annotated[
    Path, typer.Argument(help="Model file of `ttpfl train`.", dir_okay=False, show_default=False)
]
ResultsFile = Annotated[Path, typer.Argument(help="A results.json file, or its folder.", show_default=False)]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Data directory. Defaults to TTPFL_DATA, then the user's cache.", show_default=False),
]
Seed = Annotated[int | None, typer.Option(help="Random seed.", show_default="0")]
Options = Annotated[
    list[str] | None, pair_option("--option", "Set a data set option, such as image_size=64.")
]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Number of worker processes.", show_default="one per core")
]
Arch = Annotated[
    str | None,
    typer.Option(
        help="Network (see `ttpfl train`). Required if it is your own, or the file names none.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class ClientOptions:
    """How a data set becomes clients."""

    shift: Annotated[
        str | None,
        typer.Option(
            help="Shift: none, feature, label, hybrid or domain.",
            show_default="hybrid",
            autocompletion=completion.shifts,
        ),
    ] = None
    held_out: Annotated[
        str | None, typer.Option(help="Target domain, for --shift domain.", show_default=False)
    ] = None
    set_: Annotated[
        list[str] | None, pair_option("--set", "Set a population option (see `ttpfl data info`).")
    ] = None
    option: Options = None
    data_dir: DataDir = None

    def description(self, name: str, seed: int | None) -> dict[str, Any]:
        """What the clients are built from, as a model file records it."""
        choices = merged({"shift": self.shift, "held_out": self.held_out, "seed": seed}, self.set_ or ())
        return {"name": name, "options": options(self.option or ()), "choices": choices}


@dataclass(frozen=True)
class RunOptions:
    """Where a run keeps its files, and what it prints."""

    out: Annotated[
        Path, typer.Option(help="Run folder for checkpoints, history and result.", file_okay=False)
    ]
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the newest checkpoint in --out.")] = (
        False
    )
    tensorboard: Annotated[Path | None, folder_option("Folder for a TensorBoard log.")] = None
    json: Json = False
    help_more: HelpMore = False


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _png(path: Path) -> Path:
    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{path} does not end in .png")
    if not path.parent.is_dir():  # checked before the work, which may take long
        missing = f"the folder {path.parent} does not exist"
        if not _at_a_terminal() or not typer.confirm(f"{missing}. Create it?", err=True):
            raise typer.BadParameter(f"{missing}: create it first")
        path.parent.mkdir(parents=True)
    return path


Picture = Annotated[Path, typer.Option(help="PNG file to write.", dir_okay=False, callback=_png)]
