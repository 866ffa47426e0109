"""Curves of global training and of rate learning: loss and accuracy at source and target clients."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ttpfl.report.chart import Axis, Canvas
from ttpfl.report.markup import Html, element, joined
from ttpfl.report.numbers import listed, short
from ttpfl.report.parts import Data, Section, Value, figure, legend, panels
from ttpfl.report.scale import covering
from ttpfl.report.sections.flat_curves import SOURCE, Curve, flat_targets
from ttpfl.report.sections.variation import varied
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import RoundRecord, Run

MANY = 60  # points of a line from which on running means are drawn where lines are compared
WINDOW = 10  # points before and after that such a mean has
MOST = 16  # points of a line that can be pointed at; the data have all
COLOURS = 5  # classes s1 to s5; s0 is grey
DASHES = 4  # classes d0 to d3; with as many colours, 20 lines are different
TRAINING = "Global training"


@dataclass(frozen=True)
class Reading:
    """How curves are laid out: which share a chart, and what tells lines of a chart apart."""

    chart: Callable[[Curve], str]
    line: Callable[[Curve], str]
    classes: Mapping[str, str]
    """By line, in the order of the legend."""
    panel: str
    """What tells charts of one panel from those of others, for those who do not see the page."""
    calm: bool = False
    """Whether lines that jump are drawn faintly, with their running means on top."""


def curves(study: Study) -> Section | None:
    """Charts of loss and accuracy for each stage: for each case, or over the numbers that cases vary."""
    every = [curve for case in study.cases for curve in _of_case(case)]
    if not every:
        return None
    caption = "Loss and accuracy over the rounds of global training and of rate learning."
    if any(curve.stage == TRAINING and curve.name == SOURCE["validation"] for curve in every):
        caption += " In training, validation data meets the model that a round begins with."
    if not any(curve.name.startswith("target") for curve in every):
        caption += " Target clients were not evaluated on the way."
    if len(study.seeds) > 1:
        caption += " Each seed has its own line."
    content = figure("curves-figure", caption, panels("Case", dict(_panels(study, every))), _data(every))
    told = [element("p", sentence, class_="told") for sentence in flat_targets(every)]
    return Section("curves", "Training and rate learning", joined(*told, content))


def _panels(study: Study, every: Sequence[Curve]) -> Iterator[tuple[str, list[Html]]]:
    """Cases that give numbers to one name have a panel together."""
    groups = {name: [case.name for case in cases.values()] for name, cases in varied(study.cases).items()}
    grouped = {case for cases in groups.values() for case in cases}
    groups |= {case.name: [case.name] for case in study.cases if case.name not in grouped}
    names = dict.fromkeys([*SOURCE.values(), *(curve.name for curve in every)])
    by_name = {name: f"s{min(place, COLOURS)} d0" for place, name in enumerate(names)}
    for title, cases in groups.items():
        found = [curve for curve in every if curve.case in cases]
        shared, own = _divided(found, len(cases))
        panel = title if len(groups) > 1 else ""
        if found:
            yield (
                title,
                [*_panel(shared, _of_all(cases, by_name, panel)), *_panel(own, _over(cases, panel))],
            )


def _divided(found: Sequence[Curve], cases: int) -> tuple[list[Curve], list[Curve]]:
    """What is the same in all cases, as the training of a model that they share, and what is not."""
    same: dict[Curve, list[Curve]] = {}
    for curve in found:
        same.setdefault(replace(curve, case=""), []).append(curve)
    shared = [curve for curve, equal in same.items() if len(equal) == cases]
    return shared, [curve for equal in same.values() if len(equal) < cases for curve in equal]


def _of_all(cases: Sequence[str], classes: Mapping[str, str], panel: str) -> Reading:
    """A stage in one chart, with a line for each figure."""
    same = ", the same in every case" if len(cases) > 1 else ""
    return Reading(lambda curve: curve.stage + same, lambda curve: curve.name, classes, panel)


def _over(cases: Sequence[str], panel: str) -> Reading:
    """One line for each case, in charts of their own for source and target clients."""
    classes = {case: f"s{1 + place % COLOURS} d{place % DASHES}" for place, case in enumerate(cases)}
    return Reading(
        lambda curve: f"{curve.stage}: {curve.name}", lambda curve: curve.case, classes, panel, calm=True
    )


def _of_case(case: Case) -> Iterator[Curve]:
    for run in case.runs:
        yield from _of_history(run, TRAINING, run["training"])
        for labels, history in _rate_histories(run).items():
            yield from _of_history(run, f"Rate learning, {labels}", history)


def _rate_histories(run: Run) -> dict[str, list[RoundRecord]]:
    """By method; methods that share their rates, and so the history, are named together."""
    found: dict[str, list[RoundRecord]] = {}
    for entry in run["entries"]:
        history = entry["rates"]["history"] if entry["rates"] else []
        same = next((labels for labels, known in found.items() if known == history), None)
        if same is not None:
            found[f"{same}, {entry['label']}"] = found.pop(same)
        elif history:
            found[entry["label"]] = history
    return found


def _of_history(run: Run, stage: str, history: Sequence[RoundRecord]) -> Iterator[Curve]:
    found: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for number, record in enumerate(history):
        for key, value in _figures(record):
            found.setdefault(key, []).append((record.get("round", number), value))
    for (name, loss), points in found.items():
        yield Curve(run["case"], stage, run["seed"], name, loss, tuple(points))


def _figures(record: RoundRecord) -> Iterator[tuple[tuple[str, bool], float]]:
    """The figures in a record that are curves: (name, is it a loss?) and value."""
    for prefix, name in SOURCE.items():
        for figure_name in ("loss", "accuracy"):
            value: Any = record.get(f"{prefix}_{figure_name}")
            if _is_number(value):
                yield (name, figure_name == "loss"), value
    for name, value in (record.get("target") or {}).items():
        if _is_number(value):
            yield (_target(name), name.endswith("loss")), value


def _target(figure_name: str) -> str:
    """`accuracy` and `loss` are of the model, `batch` and `batch_loss` of it with rates used in that way.

    >>> _target("accuracy"), _target("batch"), _target("batch_loss")
    ('target', 'target, batch', 'target, batch')
    """
    return "target" if figure_name in ("accuracy", "loss") else f"target, {figure_name.removesuffix('_loss')}"


def _data(every: Sequence[Curve]) -> Data:
    """One row per round, one column per curve."""
    columns = list(dict.fromkeys((curve.name, curve.loss) for curve in every))
    rows: dict[tuple[Value, ...], list[Value]] = {}
    for curve in every:
        column = columns.index((curve.name, curve.loss))
        for x, y in curve.points:
            key = (curve.case, curve.seed, curve.stage, x)
            rows.setdefault(key, [None] * len(columns))[column] = y
    names = [f"{name}, {'loss' if loss else 'accuracy'}" for name, loss in columns]
    return Data(["case", "seed", "stage", "round", *names], [[*key, *row] for key, row in rows.items()])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _panel(found: Sequence[Curve], reading: Reading) -> list[Html]:
    """Charts and their legend; lines are drawn in its order."""
    used = [line for line in reading.classes if line in set(map(reading.line, found))]
    ordered = sorted(found, key=lambda curve: used.index(reading.line(curve)))
    charts = []
    for title in dict.fromkeys(map(reading.chart, found)):
        for loss in (True, False):
            chosen = [curve for curve in ordered if (reading.chart(curve), curve.loss) == (title, loss)]
            if chosen:
                charts.append(_chart(title, "loss" if loss else "accuracy", chosen, reading))
    keys = [(f"stroke {reading.classes[line]}", line) for line in used]
    if any(_is_calmed(curve, reading) for curve in found):
        text = f"as measured; the strong lines are means over {2 * WINDOW + 1} points"
        keys.append(("stroke s0 faint", text))
    return [element("div", charts, class_="multiples pairs-of-two"), legend(keys)] if charts else []


def _chart(title: str, name: str, chosen: Sequence[Curve], reading: Reading) -> Html:
    factor, unit = (1, "") if name == "loss" else (100, ", %")
    canvas = Canvas(
        Axis(covering(x for curve in chosen for x, _ in curve.points), "round"),
        Axis(covering(factor * y for curve in chosen for _, y in curve.points), name + unit),
        height=180,
    )
    lines = [_line(canvas, curve, factor, name, reading) for curve in chosen]
    description = f"{len(chosen)} lines over the rounds."
    title = f"{title}: {name}"
    chart = canvas.drawn(listed(title, reading.panel), description, lines)
    return element("div", element("h5", title), chart)


def _line(canvas: Canvas, curve: Curve, factor: float, name: str, reading: Reading) -> Iterator[Html]:
    points = [(x, factor * y) for x, y in curve.points]
    line, class_ = reading.line(curve), reading.classes[reading.line(curve)]
    if _is_calmed(curve, reading):
        yield canvas.path(points, f"{class_} faint")
        points, name = _running_means(points), f"mean {name} around it"
    yield canvas.path(points, class_)
    step = math.ceil(len(points) / MOST)
    for x, y in points[::-step][::-1]:  # the last one always
        label = f"{line}, round {x}: {name} {short(y)}, seed {curve.seed}"
        yield canvas.point(x, y, label, class_ if step == 1 else f"{class_} small", r=2.5)


def _is_calmed(curve: Curve, reading: Reading) -> bool:
    return reading.calm and len(curve.points) > MANY


def _running_means(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At each point the mean over those around it, fewer and as many on both sides near the ends."""
    means = []
    for place, (x, _) in enumerate(points):
        reach = min(WINDOW, place, len(points) - 1 - place)
        means.append((x, fmean(y for _, y in points[place - reach : place + reach + 1])))
    return means
