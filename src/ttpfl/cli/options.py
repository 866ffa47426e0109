"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ttpfl.cli import completion

Name = Annotated[
    str,
    typer.Argument(
        help="The data set; `ttpfl data list` shows all.",
        show_default=False,
        autocompletion=completion.data_sets,
    ),
]
NameOrNone = Annotated[
    str | None,
    typer.Argument(
        help="The data set; `ttpfl data list` shows all. None with --engine flower.",
        show_default=False,
        autocompletion=completion.data_sets,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where data and caches are; else the directory in TTPFL_DATA, else the user's cache.",
        show_default=False,
    ),
]
Shift = Annotated[
    str | None,
    typer.Option(
        help="none, feature, label, hybrid or domain.",
        show_default="hybrid",
        autocompletion=completion.shifts,
    ),
]
HeldOut = Annotated[
    str | None, typer.Option(help="The domain of the target clients, for --shift domain.", show_default=False)
]
Seed = Annotated[int | None, typer.Option(help="Of everything that is random.", show_default="0")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other choice about clients, with its name in `ttpfl data info NAME`; may be repeated.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the data set, such as image_size=64; may be repeated.",
        show_default=False,
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        help="The network: shallow_cnn, resnet18, resnet50, or your own as package.module:function. Needed "
        "where the file does not name one of the first three.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]


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


Picture = Annotated[Path, typer.Option(help="The PNG to write.", dir_okay=False, callback=_png)]
