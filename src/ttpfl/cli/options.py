"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttpfl.cli import completion

Name = Annotated[
    str,
    typer.Argument(
        help="Data set name (see `ttpfl data list`).",
        show_default=False,
        autocompletion=completion.data_sets,
    ),
]
NameOrNone = Annotated[
    str | None,
    typer.Argument(
        help="Data set name (see `ttpfl data list`). Omit with --engine flower.",
        show_default=False,
        autocompletion=completion.data_sets,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Data and cache directory. Defaults to TTPFL_DATA, then the user's cache.",
        show_default=False,
    ),
]
Shift = Annotated[
    str | None,
    typer.Option(
        help="Shift of the clients: none, feature, label, hybrid or domain.",
        show_default="hybrid",
        autocompletion=completion.shifts,
    ),
]
HeldOut = Annotated[str | None, typer.Option(help="Target domain, for --shift domain.", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Random seed.", show_default="0")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any other population option (see `ttpfl data info NAME`). Repeatable.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Set a data set option, such as image_size=64. Repeatable.",
        show_default=False,
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        help="Network: shallow_cnn, resnet18, resnet50 or package.module:function. Required if the file "
        "names none of the first three.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _png(path: Path) -> Path:
    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{path} does not end in .png, but that is what is written")
    if not path.parent.is_dir():  # before the work, which takes its time
        missing = f"the folder {path.parent} does not exist"
        if not _at_a_terminal() or not typer.confirm(f"{missing}. Create it?", err=True):
            raise typer.BadParameter(f"{missing}: create it first")
        path.parent.mkdir(parents=True)
    return path


Picture = Annotated[Path, typer.Option(help="PNG file to write.", dir_okay=False, callback=_png)]
