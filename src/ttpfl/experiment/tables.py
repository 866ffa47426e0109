"""Results as tables: accuracy of every entry in every case, beside the paper's."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from ttpfl.errors import RecipeError
from ttpfl.evaluation.summary import Spread, average_ranks
from ttpfl.experiment.toml import value

Results = dict[str, Any]
MARK = "<!-- results -->"
Cell = tuple[float, float | None]
"""Percent: the mean over seeds of the mean over clients, and the standard deviation over seeds."""


def load(path: Path) -> Results:
    """A file of results, or that in a folder."""
    path = path / "results.json" if path.is_dir() else path
    try:
        results = json.loads(path.read_bytes())
        if results["format"] != 1:
            raise RecipeError(f"{path} has format {results['format']!r}, but this version reads 1")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{path} is not a file of results: {error!r}") from error
    return dict(results)


def load_all(paths: Iterable[Path]) -> list[Results]:
    """Files of results in order; a folder stands for all in it."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        found += [file for file in inside if file.name != "samples.json"]
    return [load(path) for path in found]


def cases(results: Results) -> list[str]:
    """The cases in their order."""
    return list(dict.fromkeys(run["case"] for run in results["runs"]))


def accuracies(results: Results) -> dict[str, dict[str, Cell]]:
    """By entry and case.

    >>> run = {"case": "label", "seed": 0, "entries": [{"label": "none", "accuracy": [0.5, 0.7]}]}
    >>> accuracies({"runs": [run]})
    {'none': {'label': (60.0, None)}}
    """
    means: dict[str, dict[str, list[float]]] = {}
    for run in results["runs"]:
        for entry in run["entries"]:
            of_entry = means.setdefault(entry["label"], {})
            of_entry.setdefault(run["case"], []).append(100 * float(np.mean(entry["accuracy"])))
    return {
        label: {case: _cell(values) for case, values in of_entry.items()} for label, of_entry in means.items()
    }


def _cell(values: Sequence[float]) -> Cell:
    mean, deviation = Spread.of(values)
    return mean, deviation if len(values) > 1 else None


def ranks(results: Results) -> dict[str, float]:
    """The mean over cases of each entry's rank, where every entry is in every case."""
    found, names = accuracies(results), cases(results)
    return average_ranks([{label: of[case][0] for label, of in found.items()} for case in names])


def terminal_table(results: Results) -> Table:
    """For people who look at a terminal."""
    table = Table(box=box.SIMPLE_HEAD, title=results["recipe"]["title"])
    header, *rows = _cells(results)
    for number, title in enumerate(header):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(results: Results) -> str:
    """For README and documentation."""
    header, *rows = _cells(results)
    lines = [
        f"**{results['recipe']['title']}** ({_circumstances(results)})",
        "",
        "| " + " | ".join(header) + " |",
        "| --- |" + " ---: |" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)


def _circumstances(results: Results) -> str:
    """Which recipe it was, how much was computed, and where."""
    said, made, configs = results["recipe"], results["made"], [run["config"] for run in results["runs"]]
    seeds = len({run["seed"] for run in results["runs"]})
    work = [f"`{said['name']}`, preset {said['preset']}", *_changes(said.get("set", {}))]
    if "train.rounds" in configs[0]:
        work.append(f"{_range(configs, 'train.rounds')} rounds of training")
        if any(entry.get("rates") for run in results["runs"] for entry in run["entries"]):
            work.append(f"{_range(configs, 'learn.rounds')} of rate learning")
    work.append(f"{seeds} seed{'s' if seeds > 1 else ''}")
    minutes = sum(made["seconds"].values()) / 60
    work.append(f"{minutes:.0f} minutes on {made['machine']}" if minutes >= 1 else f"on {made['machine']}")
    return ", ".join(work) + ("; the paper's in brackets" if results.get("paper") else "")


def _changes(said: Mapping[str, Any]) -> list[str]:
    """What was asked for other than the recipe; which methods and cases, the table shows."""
    shown = [f"`{key}={value(said[key])}`" for key in said if key not in ("methods", "only", "entries")]
    parts = [name for key, name in (("methods", "methods"), ("only", "cases")) if key in said]
    return [*shown, *([f"not all {' and '.join(parts)}"] if parts else [])]


def _range(configs: Sequence[dict[str, Any]], key: str) -> str:
    least, most = min(config[key] for config in configs), max(config[key] for config in configs)
    return f"{least}" if least == most else f"{least} to {most}"


def replaced(page: str, tables: str) -> str:
    r"""A Markdown page with other tables between its two marks.

    >>> replaced("a\n<!-- results -->\nold\n<!-- results -->\nb", "new")
    'a\n<!-- results -->\n\nnew\n\n<!-- results -->\nb'
    """
    parts = page.split(MARK)
    if len(parts) != 3:
        raise RecipeError(
            f"the page has {len(parts) - 1} lines {MARK}: it must have two, for results between"
        )
    return MARK.join([parts[0], f"\n\n{tables}\n\n", parts[2]])


def _cells(results: Results) -> list[list[str]]:
    found, names, paper = accuracies(results), cases(results), results.get("paper", {})
    rank = ranks(results)
    rows = [["method", *(name or "accuracy" for name in names), "average rank"]]
    for label, of_entry in found.items():
        figures = [_said(of_entry[case], paper.get(label, {}).get(case)) for case in names]
        rows.append([label, *figures, f"{rank[label]:.1f}"])
    return rows


def _said(cell: Cell, paper: Sequence[float] | None) -> str:
    mean, spread = cell
    measured = f"{mean:.2f}" + ("" if spread is None else f"±{spread:.2f}")
    return measured + ("" if paper is None else f" ({paper[0]:.2f})")
