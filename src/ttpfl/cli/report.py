"""`ttpfl report`: the results of a run as one page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        Path, typer.Argument(help="A results.json, or the folder that holds one.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file to write.", dir_okay=False, show_default="report.html beside it"),
    ] = None,
) -> None:
    """Write the results of a run as one HTML page that needs no network."""
    from ttpfl.report import write_report

    typer.echo(f"{write_report(run, out)} written")
