"""`ttpfl report`: the results of a run as an HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from ttpfl.cli.options import Json, ResultsFile
from ttpfl.cli.output import answer


def report(
    run: ResultsFile,
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML file to write.",
            dir_okay=False,
            show_default="report.html beside results.json, NAME.html beside NAME.json",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's results as one self-contained HTML page."""
    from ttpfl.report import write_report

    page = write_report(run, out)
    answer({"report": page}, f"{page} written", as_json=json)
