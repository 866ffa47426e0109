"""`ttpfl results`: tables, pictures, the comparison with the paper, and the models behind results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli.options import Json, ResultsFile, file_option, option
from ttpfl.cli.output import print_result
from ttpfl.util.reading import read_bytes

if TYPE_CHECKING:
    from ttpfl.results.schema import Results

app = typer.Typer(help="Turn results into tables and pictures, or export their models.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Results files, or folders that contain them.")]
Into = Annotated[Path | None, file_option("Markdown file to update between its <!-- results --> lines.")]


@app.command("table")
def table(files: Files, into: Into = None, json: Json = False) -> None:
    """Print results as Markdown tables, next to the paper's figures."""
    from ttpfl.report.tables import accuracies, markdown
    from ttpfl.results.files import load_all

    loaded = load_all(files)
    text = "\n\n".join(map(markdown, loaded))
    _update(into, text)
    content = [
        {**_origin(results), "accuracy": accuracies(results), "paper": results["paper"]} for results in loaded
    ]
    print_result(content, *([text] if into is None else []), as_json=json)


@app.command("paper")
def paper(files: Files, into: Into = None, json: Json = False) -> None:
    """Compare results with the paper's figures, in Markdown."""
    from ttpfl.report.reproduction import as_data, reproduction
    from ttpfl.results.files import load_all

    loaded = load_all(files)
    text = reproduction(loaded)
    _update(into, text)
    content = [{**_origin(results), **as_data(results)} for results in loaded]
    print_result(content, *([text] if into is None else []), as_json=json)


@app.command("overview")
def overview(files: Files, into: Into = None, json: Json = False) -> None:
    """Compare ATP and ATP-plus with the strongest baseline over several results, in Markdown."""
    from ttpfl.report.overview import overview as of_all
    from ttpfl.results.files import load_all

    text = of_all(load_all(files))
    _update(into, text)
    print_result({"table": text}, *([text] if into is None else []), as_json=json)


@app.command("picture")
def picture(
    file: ResultsFile,
    out: Annotated[Path, option("SVG file to write.", dir_okay=False)],
    method: Annotated[str, option("Label of the method to show.")] = "atp-online",
    json: Json = False,
) -> None:
    """Plot every client of the first seed before and after adaptation."""
    from ttpfl.report.picture import picture as draw
    from ttpfl.results.files import read_json, results_file

    out.write_text(draw(read_json(results_file(file)), method) + "\n", "utf-8", "backslashreplace")
    print_result({"picture": out}, f"{out} written", as_json=json)


@app.command("export")
def export(
    file: ResultsFile,
    out: Annotated[Path, option("New folder to write into.", file_okay=False)],
    runs: Annotated[
        Path, option("Folder of `ttpfl run --out` that computed the results.", file_okay=False)
    ] = Path("runs"),
    json: Json = False,
) -> None:
    """Export the models and rates behind results, to publish them.

    `ttpfl run --models FOLDER` continues from them.
    """
    from ttpfl.experiment.export import export as copy
    from ttpfl.experiment.store import Store
    from ttpfl.report.model_card import model_card
    from ttpfl.results.export_files import README
    from ttpfl.results.files import load

    results = load(file)
    index = copy(results, Store(runs / "stages"), out)
    (out / README).write_text(model_card(results, index), "utf-8", "backslashreplace")
    files = [out / entry["file"] for entry in index["files"]]
    print_result(
        {"folder": out, "files": files}, f"{len(files)} files and {out / README} written", as_json=json
    )


def _origin(results: "Results") -> dict[str, Any]:
    return {key: results["recipe"].get(key) for key in ("name", "title", "preset", "set")}


def _update(page: Path | None, text: str) -> None:
    """Replace the text between the marks of a page, if there is one."""
    from ttpfl.report.tables import replaced

    if page is not None:
        page.write_text(replaced(read_bytes(page).decode("utf-8"), text), "utf-8")
