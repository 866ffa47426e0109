"""How the results were computed, and how to reproduce them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.numbers import duration, listed
from ttpfl.report.parts import Cell, Column, Data, Section, definitions, figure, table
from ttpfl.report.study import Study
from ttpfl.results.schema import Run

COMMIT_DIGITS = 12


def provenance(study: Study) -> Section:
    """Command, versions, times, settings and hyper-parameters."""
    command = study.results["recipe"].get("command")
    body = joined(
        element("pre", element("code", command), class_="command", tabindex="0") if command else None,
        definitions(_origin(study)),
        _folded("Settings of the runs", _settings(study)),
        _folded("Hyper-parameters of the methods", _hyper_parameters(study)),
    )
    return Section("provenance", "Provenance and reproduction", body)


def _origin(study: Study) -> list[tuple[str, Node]]:
    recipe, made = study.results["recipe"], study.results["made"]
    changed = ", ".join(f"{key}={_shown(value)}" for key, value in recipe.get("set", {}).items())
    pairs: list[tuple[str, Node]] = [
        ("recipe", recipe["name"]),
        ("preset", recipe.get("preset")),
        ("hash", element("code", recipe["hash"], class_="digest") if recipe.get("hash") else None),
        ("changed", element("code", changed) if changed else None),
        ("seeds", ", ".join(map(str, study.seeds))),
    ]
    pairs += [(name, _version(name, value)) for name, value in made.items() if not isinstance(value, dict)]
    pairs += [(f"time, {stage}", duration(seconds)) for stage, seconds in made.get("seconds", {}).items()]
    pairs += [
        (f"computed with, {stage}", texts)
        for stage, versions in made.get("stages", {}).items()
        if (texts := "; ".join(filter(None, (_differing(of_stage, made) for of_stage in versions))))
    ]
    return pairs


def _differing(versions: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """Versions of a cached stage that differ from those of the run."""
    differing = {name: value for name, value in versions.items() if made.get(name) != value}
    return ", ".join(f"{name} {_version(name, value)}" for name, value in differing.items())


def _version(name: str, value: Any) -> str:
    """A version; of a commit, as many digits as git needs."""
    if name != "commit":
        return _shown(value)
    digits, *state = _shown(value).split("-", 1)
    return "-".join([digits[:COMMIT_DIGITS], *state])


def _settings(study: Study) -> Html:
    runs = study.results["runs"]
    keys = sorted({key for run in runs for key in run["config"]})
    values = {key: [_shown(run["config"].get(key)) for run in runs] for key in keys}
    rows = [[Cell(element("code", key), key), Cell(_each(runs, values[key]))] for key in keys]
    columns = [Column("Setting", numeric=False), Column("Value", numeric=False, sortable=False)]
    names = ["setting", *(listed(run["case"], f"seed {run['seed']}") for run in runs)]
    data = Data(names, [[key, *values[key]] for key in keys])
    return figure("settings", "All settings of the runs.", table("Settings", columns, rows), data)


def _each(runs: list[Run], values: list[str]) -> Node:
    """The value shared by all runs, or each value with its cases, seeds or runs."""
    if len(set(values)) == 1:
        return element("code", values[0])
    for name_of in _NAMES:
        pairs = dict.fromkeys((name_of(run), value) for run, value in zip(runs, values, strict=True))
        if len({name for name, _ in pairs}) == len(pairs):  # the name determines the value
            break
    groups: dict[str, list[str]] = {}
    for name, value in pairs:
        groups.setdefault(value, []).append(name)
    return [
        element("div", element("code", value), element("small", f" {', '.join(names)}"))
        for value, names in groups.items()
    ]


_NAMES: tuple[Callable[[Run], str], ...] = (
    lambda run: run["case"],
    lambda run: f"seed {run['seed']}",
    lambda run: listed(run["case"], f"seed {run['seed']}"),
)


def _hyper_parameters(study: Study) -> Html:
    titles = ("Method", "Case", "Seed", "Chosen", "Tuned", "At the grid's edge")
    columns = [Column(title, numeric=title == "Seed") for title in titles]
    rows, data = [], []
    for run in study.results["runs"]:
        for entry in run["entries"]:
            tuning = entry["tuning"]
            chosen = ", ".join(f"{key}={_shown(value)}" for key, value in entry["config"].items())
            tried = f"{len(tuning['table'])} tried" if tuning else "no"
            edge = ", ".join(tuning["at_edge"]) if tuning else ""
            texts = [entry["label"], run["case"], str(run["seed"]), chosen, tried, edge]
            contents: list[Node] = [*texts[:3], element("code", chosen), *texts[4:]]
            rows.append([Cell(*pair) for pair in zip(contents, texts, strict=True)])
            data.append(texts)
    names = ["method", "case", "seed", "chosen", "tuned", "at_edge"]
    caption = (
        "Hyper-parameters. Tuned ones were chosen on source clients; for a choice at the edge of its grid, "
        "values beyond it may be better."
    )
    return figure("hyper-parameters", caption, table("Hyper-parameters", columns, rows), Data(names, data))


def _folded(title: str, content: Html) -> Html:
    return element("details", element("summary", title), content)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
