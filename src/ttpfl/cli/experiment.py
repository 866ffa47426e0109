"""`ttpfl run`, `demo`, `recipe` and `report`: from a recipe to results and a page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable
from ttpfl.cli.messages import warn
from ttpfl.cli.options import (
    DataDir,
    Json,
    ResultsFile,
    Workers,
    argument,
    folder_option,
    option,
    pair_option,
)
from ttpfl.cli.output import print_result, rows_table
from ttpfl.util.printable import printable

if TYPE_CHECKING:
    from ttpfl.experiment.recipe import Recipe

recipe_app = typer.Typer(help="List and show recipes: one per table or figure.", no_args_is_help=True)

RecipeName = Annotated[
    str, argument("Recipe name (see `ttpfl recipe list`) or TOML file.", completion.recipes)
]
Preset = Annotated[
    str | None, option("Preset of the recipe: paper, cpu or smoke.", "paper", completion.presets)
]
Changes = Annotated[list[str] | None, pair_option("--set", "Override a key, such as train.rounds=10.")]
Models = Annotated[
    Path | None,
    folder_option("Use the models and rates of this folder, written by `ttpfl results export`."),
]
Runs = Annotated[Path, option("Folder for runs and their cached stages.", file_okay=False)]


def run(
    recipe: RecipeName,
    preset: Preset = None,
    set_: Changes = None,
    models: Models = None,
    out: Runs = Path("runs"),
    workers: Workers = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Run a recipe (a whole experiment), from data to table and report.

    Finished stages are reused. If interrupted, rerun the command to resume.
    """
    from ttpfl.cli.progress import progress
    from ttpfl.experiment.context import ExperimentContext
    from ttpfl.experiment.exported import Exported
    from ttpfl.experiment.recipe import read
    from ttpfl.experiment.run import run as compute
    from ttpfl.experiment.store import Store
    from ttpfl.report import write_report
    from ttpfl.report.tables import accuracies, lines_by_case, terminal_words

    chosen = read(recipe, preset, set_ or ())
    exported = None if models is None else Exported(models)
    context = ExperimentContext(Store(out / "stages"), data_dir, workers, progress, exported)
    folder = out / chosen.folder
    _warn_of_other_results(folder / "results.json", chosen)
    with resumable("rerun the command to resume"):
        results = compute(chosen, context, folder, _command(recipe, chosen))
    page, file = write_report(folder), folder / "results.json"
    tables = {"accuracy": accuracies(results), "methods": lines_by_case(results)}
    words = [*terminal_words(results), f"{file} written; report: {page}"]
    print_result({"results": file, "report": page, **tables}, *words, as_json=json)


def demo(
    out: Runs = Path("runs"), workers: Workers = None, data_dir: DataDir = None, json: Json = False
) -> None:
    """Run the demo on handwritten digits (about two minutes)."""
    run("demo", out=out, workers=workers, data_dir=data_dir, json=json)


@recipe_app.command("list")
def list_recipes(json: Json = False) -> None:
    """List bundled recipes."""
    from ttpfl.experiment.recipe import names, presets, read

    recipes = [(name, presets(name), read(name).title) for name in names()]
    content = [{"recipe": name, "presets": listed, "title": title} for name, listed, title in recipes]
    rows = [{"recipe": name, "presets": ", ".join(listed), "title": title} for name, listed, title in recipes]
    print_result(content, rows_table(rows), as_json=json)


@recipe_app.command("show")
def show_recipe(recipe: RecipeName, preset: Preset = None, set_: Changes = None) -> None:
    """Show a recipe with all its defaults."""
    from ttpfl.experiment.complete import complete
    from ttpfl.experiment.recipe import read

    typer.echo(printable(complete(read(recipe, preset, set_ or ()))))  # escapes are those of TOML


def report(
    run: ResultsFile,
    out: Annotated[
        Path | None,
        option(
            "HTML file to write.",
            "report.html next to results.json, NAME.html next to NAME.json",
            dir_okay=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's results as one self-contained HTML page."""
    from ttpfl.report import write_report

    page = write_report(run, out)
    print_result({"report": page}, f"{page} written", as_json=json)


def _warn_of_other_results(path: Path, recipe: "Recipe") -> None:
    """Warn if the folder has results of another version of the recipe."""
    from ttpfl.errors import ReportError
    from ttpfl.results.files import load

    if not path.exists():
        return
    try:
        same = load(path).get("recipe", {}).get("hash") == recipe.hash
    except ReportError:  # damaged or of another version, and replaced anyway
        same = False
    if not same:
        warn(f"{path} belongs to another version of {recipe.name} and will be replaced; --out keeps it")


def _command(name: str, recipe: "Recipe") -> str:
    """The command that repeats the run, without this machine's folders."""
    from ttpfl.experiment.toml import value

    changes = (word for key, new in recipe.changes.items() for word in ("--set", f"{key}={value(new)}"))
    return shlex.join(["ttpfl", "run", name, "--preset", recipe.preset, *changes])
