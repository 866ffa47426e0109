"""Curves of global training and of rate learning: loss and accuracy at source and target clients."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttpfl.report.chart import Axis, Canvas
from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import short
from ttpfl.report.parts import Data, Section, Value, figure, legend, panels
from ttpfl.report.scale import covering
from ttpfl.report.schema import Record, Run
from ttpfl.report.study import Case, Study

MOST = 16  # points of a line that can be pointed at; the data have all
COLOURS = 6  # classes s0 to s5
SOURCE = {"train": "source, training data", "validation": "source, validation data"}


@dataclass(frozen=True)
class Curve:
    """One figure over the rounds."""

    stage: str
    seed: int
    name: str
    loss: bool
    points: list[tuple[int, float]]


def curves(study: Study) -> Section | None:
    """Charts of loss and accuracy for each stage, with a choice of the case."""
    by_case = {case.name: list(_of_case(case)) for case in study.cases}
    names = dict.fromkeys(curve.name for found in by_case.values() for curve in found)
    if not names:
        return None
    classes = {
        name: f"s{min(place, COLOURS - 1)}"
        for place, name in enumerate(dict.fromkeys([*SOURCE.values(), *names]))
    }
    shown = {case: _charts(found, classes) for case, found in by_case.items() if found}
    keys = [(classes[name], name) for name in names]
    caption = "Loss and accuracy over the rounds of global training and of rate learning."
    if not any(name.startswith("target") for name in names):
        caption += " Target clients were not evaluated on the way."
    if len(study.seeds) > 1:
        caption += " Each seed has its own line."
    content = figure("curves-figure", caption, [panels("Case", shown), legend(keys)], _data(by_case))
    return Section("curves", "Training and rate learning", content)


def _of_case(case: Case) -> Iterator[Curve]:
    for run in case.runs:
        yield from _of_history("Global training", run["seed"], run["training"])
        for labels, history in _rate_histories(run).items():
            yield from _of_history(f"Rate learning, {labels}", run["seed"], history)


def _rate_histories(run: Run) -> dict[str, list[Record]]:
    """By method; methods that share their rates, and so the history, are named together."""
    found: dict[str, list[Record]] = {}
    for entry in run["entries"]:
        history = entry["rates"]["history"] if entry["rates"] else []
        same = next((labels for labels, known in found.items() if known == history), None)
        if same is not None:
            found[f"{same}, {entry['label']}"] = found.pop(same)
        elif history:
            found[entry["label"]] = history
    return found


def _of_history(stage: str, seed: int, history: Sequence[Record]) -> Iterator[Curve]:
    found: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for number, record in enumerate(history):
        for key, value in _figures(record):
            found.setdefault(key, []).append((record.get("round", number), value))
    for (name, loss), points in found.items():
        yield Curve(stage, seed, name, loss, points)


def _figures(record: Record) -> Iterator[tuple[tuple[str, bool], float]]:
    """The figures in a record that are curves: (name, is it a loss?) and value."""
    for prefix, name in SOURCE.items():
        for figure_name in ("loss", "accuracy"):
            value: Any = record.get(f"{prefix}_{figure_name}")
            if _is_number(value):
                yield (name, figure_name == "loss"), value
    for name, value in (record.get("target") or {}).items():
        if _is_number(value):
            yield (f"target, {name}", name.endswith("loss")), value


def _data(by_case: Mapping[str, Sequence[Curve]]) -> Data:
    """One row per round, one column per curve."""
    every = [curve for found in by_case.values() for curve in found]
    columns = list(dict.fromkeys((curve.name, curve.loss) for curve in every))
    rows: dict[tuple[Value, ...], list[Value]] = {}
    for case, found in by_case.items():
        for curve in found:
            column = columns.index((curve.name, curve.loss))
            for x, y in curve.points:
                rows.setdefault((case, curve.seed, curve.stage, x), [None] * len(columns))[column] = y
    names = [f"{name}, {'loss' if loss else 'accuracy'}" for name, loss in columns]
    return Data(["case", "seed", "stage", "round", *names], [[*key, *row] for key, row in rows.items()])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _charts(found: Sequence[Curve], classes: Mapping[str, str]) -> Html:
    charts = []
    for stage in dict.fromkeys(curve.stage for curve in found):
        for loss in (True, False):
            chosen = [curve for curve in found if (curve.stage, curve.loss) == (stage, loss)]
            if chosen:
                charts.append(_chart(stage, "loss" if loss else "accuracy", chosen, classes))
    return element("div", charts, class_="multiples pairs-of-two")


def _chart(stage: str, name: str, chosen: Sequence[Curve], classes: Mapping[str, str]) -> Html:
    factor, unit = (1, "") if name == "loss" else (100, ", %")
    canvas = Canvas(
        Axis(covering(x for curve in chosen for x, _ in curve.points), "round"),
        Axis(covering(factor * y for curve in chosen for _, y in curve.points), name + unit),
        height=180,
    )
    lines = [_line(canvas, curve, factor, name, classes[curve.name]) for curve in chosen]
    description = f"{len(chosen)} lines over the rounds."
    return element("div", element("h5", stage), canvas.drawn(f"{stage}: {name}", description, lines))


def _line(canvas: Canvas, curve: Curve, factor: float, name: str, class_: str) -> Iterator[Html]:
    points = [(x, factor * y) for x, y in curve.points]
    yield canvas.path(points, class_)
    step = math.ceil(len(points) / MOST)
    for x, y in points[::-step][::-1]:  # the last one always
        label = f"{curve.name}, round {x}: {name} {short(y)}, seed {curve.seed}"
        yield canvas.point(x, y, label, class_ if step == 1 else f"{class_} small", r=2.5)
