"""Results as Markdown and plain data: the accuracy of every method in every case, next to the paper's."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rich.table import Table

from ttpfl.errors import RecipeError
from ttpfl.evaluation.summary import Line, Spread
from ttpfl.report.numbers import listed, plain, signed
from ttpfl.report.orders import ORDERS, changes, mean, of_all_cases
from ttpfl.report.study import Ranking, Study, study
from ttpfl.report.terminal import study_words
from ttpfl.results.schema import Run
from ttpfl.util.printable import counted, printable

MARK = "<!-- results -->"
SELECTIONS = {"methods": "methods", "only": "cases", "entries": "lines"}  # keys of recipes: what they select


def accuracies(results: object) -> dict[str, dict[str, tuple[float, float | None]]]:
    """By method and case, in percent: mean and standard deviation over seeds (None for a single seed)."""
    checked = study(results)
    return {
        label: {case.name: _pair(case.accuracy[label]) for case in checked.cases if label in case.accuracy}
        for label in checked.labels
    }


def terminal_words(results: object) -> list[Table | str]:
    """A table for terminals, and an explanation of its columns."""
    return study_words(study(results))


def lines_by_case(results: object) -> dict[str, list[Line]]:
    """All figures of every method in each case."""
    return {case.name: list(case.lines.values()) for case in study(results).cases}


def markdown(results: object) -> str:
    """A Markdown table for README and documentation."""
    checked = study(results)
    header, *rows = _cells(checked)
    brackets = "; the paper's in brackets" * any(case.paper for case in checked.cases)
    return f"{heading(checked, brackets)}\n\n{table(header, rows)}{_in_all_orders(checked)}"


def heading(study: Study, note: str = "") -> str:
    """The title of a table in bold, and how its figures were computed."""
    return f"**{plain_text(study.results['recipe']['title'])}** ({plain_text(_circumstances(study) + note)})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table; the first `texts` columns are aligned to the left, the others to the right.

    >>> print(table(["method", "accuracy"], [["none", "60.7"]]))
    | method | accuracy |
    | --- | ---: |
    | none | 60.7 |
    """
    alignment = "|" + " --- |" * texts + " ---: |" * (len(header) - texts)
    return "\n".join([_line(header), alignment, *map(_line, rows)])


def _in_all_orders(study: Study) -> str:
    """A second table if the samples came in several orders: all clients together, and what they lose."""
    if not (runs := of_all_cases(study)):
        return ""
    clients = sum(len(run["clients"]) for run in next(iter(runs.values())))
    header = ["method"]
    for order in runs:
        lost = f"lost over a point (of {clients})"
        header += [f"{study.metric}, {ORDERS.get(order, order)}", lost, "worst"]
    rows = [
        [label, *(cell for order in runs for cell in _together(runs[order], label))] for label in study.common
    ]
    return "\n\n" + table(header, rows)


def _together(runs: list[Run], label: str) -> list[str]:
    """The mean over all clients, how many lose more than a point, and the largest loss."""
    average, changed = plain(mean(runs, label)), changes(runs, label)
    if not changed:
        return [average, "", ""]
    return [average, str(sum(round(change, 6) < -1 for change in changed)), signed(min(changed))]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(plain_text(cell).replace("|", r"\|") for cell in cells) + " |"


def plain_text(text: str) -> str:
    """Text without markup, line breaks and invisible characters.

    >>> plain_text("<img src=x>")
    '&lt;img src=x&gt;'
    """
    return escape(printable(" ".join(text.split())), quote=False)


def _pair(spread: Spread) -> tuple[float, float | None]:
    return spread.mean, None if math.isnan(spread.deviation) else spread.deviation


def _circumstances(study: Study) -> str:
    """Recipe, amount of work, and machine."""
    recipe, made, runs = study.results["recipe"], study.results["made"], study.results["runs"]
    learned = [entry["rates"]["history"] for run in runs for entry in run["entries"] if entry["rates"]]
    work = [listed(f"`{recipe['name']}`", f"preset {recipe['preset']}" if recipe.get("preset") else None)]
    work += _overrides(recipe.get("set", {}))
    work += [f"{rounds} rounds of training"] if (rounds := training_rounds(study)) else []
    # Learning may end before the maximum number of rounds.
    work += [f"{_range([len(history) for history in learned])} of rate learning"] if learned else []
    work.append(counted(len(study.seeds), "seed"))
    minutes = sum(made.get("seconds", {}).values()) / 60
    machine = f"on {made.get('machine', 'an unknown machine')}"
    work.append(f"{minutes:.0f} minutes {machine}" if minutes >= 1 else machine)
    return ", ".join(work)


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    """Overridden settings; the table itself shows which methods, cases and lines were selected."""
    texts = [f"`{key}={json.dumps(value)}`" for key, value in settings.items() if key not in SELECTIONS]
    selected = [name for key, name in SELECTIONS.items() if key in settings]
    return [*texts, *([f"own choice of {' and '.join(selected)}"] if selected else [])]


def training_rounds(study: Study) -> str:
    """The smallest and largest number of rounds of training; empty if unknown."""
    configs = [run["config"] for run in study.results["runs"]]
    return _range([config["train.rounds"] for config in configs if "train.rounds" in config])


def _range(values: Sequence[int]) -> str:
    return " to ".join(map(str, sorted({min(values), max(values)}))) if values else ""


def replaced(page: str, tables: str) -> str:
    r"""A Markdown page with the text between its two marks replaced.

    >>> replaced("a\n<!-- results -->\nold\n<!-- results -->\nb", "new")
    'a\n<!-- results -->\n\nnew\n\n<!-- results -->\nb'
    """
    parts = page.split(MARK)
    if len(parts) != 3:
        raise RecipeError(f"the page has {len(parts) - 1} lines {MARK}: it must have two around the results")
    return MARK.join([parts[0], f"\n\n{tables}\n\n", parts[2]])


def _cells(study: Study) -> list[list[str]]:
    names = [case.name or study.metric for case in study.cases]
    rows = [["method", *names, *(ranking.title for ranking in study.rankings)]]
    for label in study.labels:
        accuracies = [_accuracy(case.accuracy.get(label), case.paper.get(label)) for case in study.cases]
        rows.append([label, *accuracies, *(_rank(ranking, label) for ranking in study.rankings)])
    return rows


def _accuracy(measured: Spread | None, paper: Spread | None) -> str:
    return "" if measured is None else f"{measured}" + (f" ({paper.mean:.2f})" if paper else "")


def _rank(ranking: Ranking, label: str) -> str:
    if label not in ranking.here:
        return ""
    return f"{ranking.here[label]:.1f}" + (f" ({ranking.paper[label]:.1f})" if ranking.paper else "")
