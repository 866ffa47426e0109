"""`ttpfl run`, `ttpfl recipe` and `ttpfl results`: every table and figure as one command."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.messages import warn
from ttpfl.cli.options import DataDir, Json
from ttpfl.cli.output import answer, rows_table
from ttpfl.printable import printable
from ttpfl.reading import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttpfl.experiment.recipe import Recipe

recipe_app = typer.Typer(help="List and show recipes: one per table or figure.", no_args_is_help=True)
results_app = typer.Typer(help="Turn results into tables and pictures.", no_args_is_help=True)

RecipeName = Annotated[
    str,
    typer.Argument(
        help="Recipe name (see `ttpfl recipe list`) or TOML file.",
        show_default=False,
        autocompletion=completion.recipes,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Preset of the recipe: paper, cpu or smoke.",
        show_default="paper",
        autocompletion=completion.presets,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key, such as train.rounds=10. Repeatable.",
        show_default=False,
    ),
]
Runs = Annotated[Path, typer.Option(help="Folder for runs and their cached stages.", file_okay=False)]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Number of worker processes.", show_default="one per core")
]


def run(
    recipe: RecipeName,
    preset: Preset = None,
    set_: Changes = None,
    out: Runs = Path("runs"),
    workers: Workers = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Run a recipe, from data to table and report.

    Finished stages are reused. If interrupted, rerun the command to resume.
    """
    from ttpfl.cli.progress import progress
    from ttpfl.experiment.recipe import read
    from ttpfl.experiment.run import run as compute
    from ttpfl.experiment.store import Store
    from ttpfl.experiment.workshop import Workshop
    from ttpfl.report import write_report
    from ttpfl.report.tables import accuracies, lines_by_case, terminal_words

    chosen = read(recipe, preset, set_ or ())
    shop = Workshop(Store(out / "stages"), data_dir, workers, progress)
    folder = out / chosen.folder
    _tell_of_other_results(folder / "results.json", chosen)
    with resumable("rerun the command to resume"):
        results = compute(chosen, shop, folder, _command(recipe, chosen))
    page = write_report(folder)
    facts = {
        "results": folder / "results.json",
        "report": page,
        "accuracy": accuracies(results),
        "methods": lines_by_case(results),
    }
    last = f"{facts['results']} written; look at {page}"
    answer(facts, *terminal_words(results), last, as_json=json)


def demo(
    out: Runs = Path("runs"), workers: Workers = None, data_dir: DataDir = None, json: Json = False
) -> None:
    """Run the demo on handwritten digits (about two minutes)."""
    run("demo", None, None, out, workers, data_dir, json)


@recipe_app.command("list")
def list_recipes(json: Json = False) -> None:
    """List bundled recipes."""
    from ttpfl.experiment.recipe import known, presets, read

    facts: list[dict[str, Any]] = [
        {"recipe": name, "presets": presets(name), "title": read(name).title} for name in known()
    ]
    rows = [{**fact, "presets": ", ".join(fact["presets"])} for fact in facts]
    answer(facts, rows_table(rows), as_json=json)


@recipe_app.command("show")
def show_recipe(recipe: RecipeName, preset: Preset = None, set_: Changes = None) -> None:
    """Show a recipe with all its defaults."""
    from ttpfl.experiment.complete import complete
    from ttpfl.experiment.recipe import read

    typer.echo(printable(complete(read(recipe, preset, set_ or ()))))  # TOML has the same escapes


@results_app.command("table")
def table(
    files: Annotated[list[Path], typer.Argument(help="Results files, or folders that contain them.")],
    into: Annotated[
        Path | None,
        typer.Option(
            help="Markdown file to update between its <!-- results --> lines.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print results as Markdown tables, beside the paper's figures."""
    from ttpfl.report.tables import accuracies, markdown, replaced
    from ttpfl.results.files import load_all

    found = load_all(files)
    text = "\n\n".join(map(markdown, found))
    if into is not None:
        into.write_text(replaced(read_bytes(into).decode("utf-8"), text), "utf-8")
    facts = [
        {**_naming(results["recipe"]), "accuracy": accuracies(results), "paper": results["paper"]}
        for results in found
    ]
    answer(facts, *([text] if into is None else []), as_json=json)


@results_app.command("picture")
def picture(
    file: Annotated[Path, typer.Argument(help="A results.json file, or its folder.", show_default=False)],
    out: Annotated[Path, typer.Option(help="SVG file to write.", dir_okay=False)],
    method: Annotated[str, typer.Option(help="Label of the method to show.")] = "atp-online",
    json: Json = False,
) -> None:
    """Plot every client of the first run before and after adaptation."""
    from ttpfl.report.picture import picture as drawn
    from ttpfl.results.files import read_json, results_file

    out.write_text(drawn(read_json(results_file(file)), method) + "\n", "utf-8", "backslashreplace")
    answer({"picture": out}, f"{out} written", as_json=json)


def _naming(recipe: "Mapping[str, Any]") -> dict[str, Any]:
    return {key: recipe.get(key) for key in ("name", "title", "preset", "set")}


def _tell_of_other_results(path: Path, recipe: "Recipe") -> None:
    """A recipe that was edited, or another one of its name, has the same folder."""
    from ttpfl.errors import ReportError
    from ttpfl.results.files import load

    if not path.exists():
        return
    try:
        same = load(path).get("recipe", {}).get("hash") == recipe.hash
    except ReportError:  # damaged, or of another version: it can be made again
        same = False
    if not same:
        warn(f"{path} is of another state of {recipe.name}, and will be replaced; --out keeps it")


def _command(name: str, recipe: "Recipe") -> str:
    """What runs the same again, without the places of data and runs on this machine."""
    from ttpfl.experiment.toml import value

    changes = (word for key, said in recipe.changes.items() for word in ("--set", f"{key}={value(said)}"))
    return shlex.join(["ttpfl", "run", name, "--preset", recipe.preset, *changes])
