"""Results as tables for pages and terminals: accuracy of every entry in every case, beside the paper's."""

import json
import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rich.table import Table

from ttpfl.errors import RecipeError
from ttpfl.evaluation.summary import Line, Spread
from ttpfl.report.numbers import listed
from ttpfl.report.study import Ranking, Study, study
from ttpfl.report.terminal import study_words
from ttpfl.util.printable import printable

MARK = "<!-- results -->"
SHOWN = {"methods": "methods", "only": "cases", "entries": "lines"}  # keys of recipes, by what tables show


def accuracies(results: object) -> dict[str, dict[str, tuple[float, float | None]]]:
    """By entry and case, in percent: mean and standard deviation over seeds, None if there is one seed."""
    known = study(results)
    return {
        label: {case.name: _pair(case.accuracy[label]) for case in known.cases if label in case.accuracy}
        for label in known.labels
    }


def terminal_words(results: object) -> list[Table | str]:
    """For people who look at a terminal: a table, and what its columns mean."""
    return study_words(study(results))


def lines_by_case(results: object) -> dict[str, list[Line]]:
    """All figures of every entry in each case, over its clients."""
    return {case.name: list(case.lines.values()) for case in study(results).cases}


def markdown(results: object) -> str:
    """For README and documentation."""
    known = study(results)
    header, *rows = _cells(known)
    lines = [
        f"**{_text(known.results['recipe']['title'])}** ({_text(_circumstances(known))})",
        "",
        _line(header),
        "| --- |" + " ---: |" * (len(header) - 1),
        *map(_line, rows),
    ]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_text(cell).replace("|", r"\|") for cell in cells) + " |"


def _text(said: str) -> str:
    """Text in Markdown that cannot be markup of a page, end a line or hide anything.

    >>> _text("<img src=x>")
    '&lt;img src=x&gt;'
    """
    return escape(printable(" ".join(said.split())), quote=False)


def _pair(found: Spread) -> tuple[float, float | None]:
    return found.mean, None if math.isnan(found.deviation) else found.deviation


def _circumstances(known: Study) -> str:
    """Which recipe it was, how much was computed, and where."""
    said, made = known.results["recipe"], known.results["made"]
    learned = any(entry["rates"] for run in known.results["runs"] for entry in run["entries"])
    work = [listed(f"`{said['name']}`", f"preset {said['preset']}" if said.get("preset") else None)]
    work += _changes(said.get("set", {}))
    work += [f"{rounds} rounds of training" for rounds in _range(known, "train.rounds")]
    work += [f"{rounds} of rate learning" for rounds in _range(known, "learn.rounds") if learned]
    work.append(f"{len(known.seeds)} seed{'s' if len(known.seeds) > 1 else ''}")
    minutes = sum(made.get("seconds", {}).values()) / 60
    where = f"on {made.get('machine', 'an unknown machine')}"
    work.append(f"{minutes:.0f} minutes {where}" if minutes >= 1 else where)
    return ", ".join(work) + "; the paper's in brackets" * any(case.paper for case in known.cases)


def _changes(said: Mapping[str, Any]) -> list[str]:
    """What was asked for other than the recipe; which methods, cases and lines, the table shows."""
    shown = [f"`{key}={json.dumps(value)}`" for key, value in said.items() if key not in SHOWN]
    parts = [name for key, name in SHOWN.items() if key in said]
    return [*shown, *([f"own choice of {' and '.join(parts)}"] if parts else [])]


def _range(known: Study, key: str) -> list[str]:
    """A number of the runs, from the least to the most, if they have it."""
    found = [run["config"][key] for run in known.results["runs"] if key in run["config"]]
    return [" to ".join(map(str, sorted({min(found), max(found)})))] if found else []


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


def _cells(known: Study) -> list[list[str]]:
    names = [case.name or "accuracy" for case in known.cases]
    rows = [["method", *names, *(ranking.title for ranking in known.rankings)]]
    for label in known.labels:
        figures = [_said(case.accuracy.get(label), case.paper.get(label)) for case in known.cases]
        rows.append([label, *figures, *(_rank(ranking, label) for ranking in known.rankings)])
    return rows


def _said(measured: Spread | None, paper: Spread | None) -> str:
    return "" if measured is None else f"{measured}" + (f" ({paper.mean:.2f})" if paper else "")


def _rank(ranking: Ranking, label: str) -> str:
    if label not in ranking.here:
        return ""
    return f"{ranking.here[label]:.1f}" + (f" ({ranking.paper[label]:.1f})" if ranking.paper else "")
