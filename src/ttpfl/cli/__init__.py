"""The command `ttpfl`. Each command has its own file, and a line at the end of this one.

Commands import what they need when they run, so that `ttpfl --help` does not wait for torch.
"""

from typing import Annotated

import typer

from ttpfl._version import __version__
from ttpfl.cli import compare, data, federation, flower
from ttpfl.cli.errors import Commands

app = typer.Typer(
    cls=Commands,
    help="Test-time personalised federated learning: learn what to adapt, and how far.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app(prog_name="ttpfl")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ttpfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.add_typer(data.app, name="data")
app.command("train")(federation.train)
app.command("learn")(federation.learn)
app.command("compare")(compare.compare)
app.add_typer(flower.app, name="flower")
