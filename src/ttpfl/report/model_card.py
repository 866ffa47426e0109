"""The README of an export: what the models and rates are, how good they are, and how to use them."""

from collections.abc import Iterable

from ttpfl.report.study import Study, study
from ttpfl.report.tables import markdown, plain_text, table
from ttpfl.results.export_files import MODEL, RATES, Export
from ttpfl.util.front_matter import front_matter
from ttpfl.util.printable import one_line


def model_card(results: object, export: Export) -> str:
    """A Markdown page for the folder of an export."""
    checked = study(results)
    recipe = checked.results["recipe"]
    preset = f", preset {plain_text(name)}" if (name := recipe.get("preset")) else ""
    parts = [
        front_matter({}),
        f"# {plain_text(recipe['title'])}",
        "Global models and learned rates for test-time personalisation, behind the results of the recipe "
        f"`{plain_text(recipe['name'])}`{preset}. {plain_text(recipe['question'])}".rstrip(),
        "## Data",
        *_data(checked),
        "## Accuracy",
        "Mean over the target clients, in percent.",
        markdown(checked.results),
        "## Use",
        _block("python", _lines_of_python(export)),
        "To compare the methods again without training and learning (FOLDER is the folder of this file):",
        _block("sh", [f"{recipe.get('command') or 'ttpfl run ' + recipe['name']} --models FOLDER"]),
        "## Files",
        table(
            ["file", "used for", "SHA-256"],
            [
                [f"`{file['file']}`", "; ".join(file["uses"]), f"`{file['sha256']}`"]
                for file in export["files"]
            ],
            texts=3,
        ),
        "`export.json` has the settings, the history and the versions behind every file.",
        "## Versions",
        table(["", "version"], _versions(checked), texts=2),
    ]
    return "\n\n".join(parts) + "\n"


def _data(checked: Study) -> Iterable[str]:
    """The populations, and a note on licences."""
    runs = checked.results["runs"]
    names = ", ".join(dict.fromkeys(plain_text(run["population"]["name"]) for run in runs))
    yield f"Weights trained on {names}: see its licence."
    rows = [
        [
            checked.title(run["case"], run["seed"]) or "all",
            run["population"]["name"],
            str(len(run["population"]["classes"])),
            str(run["population"]["source_clients"]),
            str(run["population"]["target_clients"]),
            f"`{run['population']['digest'][:12]}`",
        ]
        for run in runs
    ]
    header = ["case", "data", "classes", "source clients", "target clients", "hash of the clients"]
    yield table(header, rows, texts=2)


def _lines_of_python(export: Export) -> list[str]:
    """How to load the first model, with the first rates if there are any."""
    first = {file["stage"]: file["file"] for file in reversed(export["files"])}
    lines = ["import ttpfl", "", f'model, card = ttpfl.models.load_model("{first[MODEL]}")']
    if RATES in first:
        lines.append(f'site = ttpfl.Personalizer(model, ttpfl.Rates.load("{first[RATES]}", model=model))')
        lines.append(
            "logits = site.predict(images)  # one batch after the other, normalised as the card says"
        )
    return lines


def _versions(checked: Study) -> list[list[str]]:
    made = {name: value for name, value in checked.results["made"].items() if isinstance(value, str)}
    return [[name, value] for name, value in made.items()]


def _block(language: str, lines: Iterable[str]) -> str:
    return "\n".join([f"```{language}", *map(one_line, lines), "```"])
