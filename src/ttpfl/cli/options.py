"""Options that several commands share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.help_pages import HelpMore
from ttpfl.cli.values import merged, options


def argument(help: str, complete: Callable[[], list[str]] | None = None, **more: Any) -> Any:
    """A positional argument."""
    return typer.Argument(help=help, show_default=False, autocompletion=complete, **more)


def option(
    help: str, default: str | bool = True, complete: Callable[..., list[str]] | None = None, **more: Any
) -> Any:
    """An option; `default` describes its default on the help page, or whether to show it."""
    return typer.Option(help=help, show_default=default, autocompletion=complete, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """A flag without a --no form."""
    return typer.Option(name, help=help, **more)


def file_option(help: str) -> Any:
    """An option that is a file."""
    return option(help, False, dir_okay=False)


def folder_option(help: str) -> Any:
    """An option that is a folder."""
    return option(help, False, file_okay=False)


def pair_option(name: str, help: str) -> Any:
    """An option for KEY=VALUE that may be repeated."""
    return typer.Option(name, metavar="KEY=VALUE", help=f"{help} Repeatable.", show_default=False)


_DATA_SET = "Data set name (see `ttpfl data list`)."
Name = Annotated[str, argument(_DATA_SET, completion.data_sets)]
NameOrNone = Annotated[str | None, argument(f"{_DATA_SET} Omit with --engine flower.", completion.data_sets)]
ModelFile = Annotated[Path, argument("Model file of `ttpfl train`.", dir_okay=False)]
ResultsFile = Annotated[Path, argument("A results.json file, or its folder.")]
DataDir = Annotated[
    Path | None, option("Data directory. Defaults to TTPFL_DATA, then the user's cache.", False)
]
Seed = Annotated[int | None, option("Random seed.", "0")]
Options = Annotated[
    list[str] | None, pair_option("--option", "Set a data set option, such as image_size=64.")
]
Workers = Annotated[int | None, option("Number of worker processes.", "one per core", min=0)]
_ARCH = "Network (see `ttpfl train`). Required if it is your own, or the file names none."
Arch = Annotated[str | None, option(_ARCH, False, completion.models)]
Json = Annotated[bool, flag("--json", "Print JSON.")]


@dataclass(frozen=True)
class ClientOptions:
    """How a data set becomes clients."""

    shift: Annotated[
        str | None, option("Shift: none, feature, label, hybrid or domain.", "hybrid", completion.shifts)
    ] = None
    held_out: Annotated[
        str | None, option("Target domain, for --shift domain; or comma-separated target clients.", False)
    ] = None
    set_: Annotated[
        list[str] | None, pair_option("--set", "Set a population option (see `ttpfl data info`).")
    ] = None
    option: Options = None
    data_dir: DataDir = None

    def description(self, name: str, seed: int | None) -> dict[str, Any]:
        """The description of the clients, as in the card of a model file."""
        choices = merged({"shift": self.shift, "held_out": self.held_out, "seed": seed}, self.set_ or ())
        return {"name": name, "options": options(self.option or ()), "choices": choices}


@dataclass(frozen=True)
class RunOptions:
    """Where a run stores its files, and what it prints."""

    out: Annotated[Path, option("Run folder for checkpoints, history and result.", file_okay=False)]
    resume: Annotated[bool, flag("--resume", "Resume from the newest checkpoint in --out.")] = False
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


Picture = Annotated[Path, option("PNG file to write.", dir_okay=False, callback=_png)]
