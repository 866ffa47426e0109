"""Loss and accuracy over the rounds of global training and rate learning."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ttpfl.report.chart import Axis, Canvas
from ttpfl.report.markup import Html, element, joined
from ttpfl.report.numbers import listed, merged, short
from ttpfl.report.parts import Data, Section, Value, figure, legend, panels
from ttpfl.report.scale import covering
from ttpfl.report.sections.flat_curves import SOURCE, Curve, flat_targets
from ttpfl.report.sections.variation import varied
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import RoundRecord, Run

SMOOTHED = 60  # compared lines with more points are smoothed
WINDOW = 10  # points on either side in a running mean
MAX_POINTS = 16  # points of a line that have a tooltip; the data has all
COLOURS = 5  # classes s1 to s5; s0 is grey
DASHES = 4  # classes d0 to d3; with 5 colours, 20 lines are distinct
TRAINING = "Global training"


@dataclass(frozen=True)
class Layout:
    """Which curves share a chart, and what distinguishes the lines of a chart."""

    chart: Callable[[Curve], str]
    line: Callable[[Curve], str]
    classes: Mapping[str, str]
    """By line, in the order of the legend."""
    panel: str
    """The panel's name in chart titles for screen readers, if there are several panels."""
    smooth: bool = False
    """Whether to draw long lines faintly, with their running means on top."""

    def smooths(self, curve: Curve) -> bool:
        """Whether a curve is smoothed."""
        return self.smooth and len(curve.points) > SMOOTHED


def curves(study: Study) -> Section | None:
    """Charts of loss and accuracy for each stage: for each case, or over the number that cases vary."""
    all_curves = [curve for case in study.cases for curve in _case_curves(case)]
    if not all_curves:
        return None
    caption = "Loss and accuracy over the rounds of global training and rate learning."
    if any(curve.stage == TRAINING and curve.name == SOURCE["validation"] for curve in all_curves):
        caption += " During training, validation data is evaluated with the model at the start of a round."
    if not any(curve.name.startswith("target") for curve in all_curves):
        caption += " Target clients were not evaluated during the run."
    if len(study.seeds) > 1:
        caption += " There is one line per seed."
    charts = panels("Case", dict(_panels(study, all_curves)))
    content = figure("curves-figure", caption, charts, _data(all_curves))
    notes = [element("p", sentence, class_="note") for sentence in flat_targets(all_curves)]
    return Section("curves", "Training and rate learning", joined(*notes, content))


def _panels(study: Study, all_curves: Sequence[Curve]) -> Iterator[tuple[str, list[Html]]]:
    """Cases that vary the same number share a panel."""
    groups = {name: [case.name for case in cases.values()] for name, cases in varied(study.cases).items()}
    grouped = {case for cases in groups.values() for case in cases}
    groups |= {case.name: [case.name] for case in study.cases if case.name not in grouped}
    names = dict.fromkeys([*SOURCE.values(), *(curve.name for curve in all_curves)])
    by_name = {name: f"s{min(place, COLOURS)} d0" for place, name in enumerate(names)}
    for title, cases in groups.items():
        shared, distinct = _divided([curve for curve in all_curves if curve.case in cases], len(cases))
        panel = title if len(groups) > 1 else ""
        charts = [
            *_panel(shared, _by_figure(cases, by_name, panel)),
            *_panel(distinct, _by_case(cases, panel)),
        ]
        if charts:
            yield title, charts


def _divided(curves: Sequence[Curve], cases: int) -> tuple[list[Curve], list[Curve]]:
    """Curves that all cases share, such as those of a common model, and the others."""
    same: dict[Curve, list[Curve]] = {}
    for curve in curves:
        same.setdefault(replace(curve, case=""), []).append(curve)
    shared = [curve for curve, equal in same.items() if len(equal) == cases]
    return shared, [curve for equal in same.values() if len(equal) < cases for curve in equal]


def _by_figure(cases: Sequence[str], classes: Mapping[str, str], panel: str) -> Layout:
    """One chart per stage, with a line for each figure."""
    same = ", the same in every case" if len(cases) > 1 else ""
    return Layout(lambda curve: curve.stage + same, lambda curve: curve.name, classes, panel)


def _by_case(cases: Sequence[str], panel: str) -> Layout:
    """One chart per stage and figure, with a line for each case."""
    classes = {case: f"s{1 + place % COLOURS} d{place % DASHES}" for place, case in enumerate(cases)}
    return Layout(lambda c: f"{c.stage}: {c.name}", lambda c: c.case, classes, panel, smooth=True)


def _case_curves(case: Case) -> Iterator[Curve]:
    for run in case.runs:
        yield from _stage_curves(run, TRAINING, run["training"])
        rates = [(entry["label"], entry["rates"]["history"]) for entry in run["entries"] if entry["rates"]]
        for labels, history in merged(rates).items():  # methods that share their rates share the history
            yield from _stage_curves(run, f"Rate learning, {labels}", history)


def _stage_curves(run: Run, stage: str, history: Sequence[RoundRecord]) -> Iterator[Curve]:
    by_figure: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for number, record in enumerate(history):
        for key, value in _figures(record):
            by_figure.setdefault(key, []).append((record.get("round", number), value))
    for (name, loss), points in by_figure.items():
        yield Curve(run["case"], stage, run["seed"], name, loss, tuple(points))


def _figures(record: RoundRecord) -> Iterator[tuple[tuple[str, bool], float]]:
    """The figures of a record that become curves: (name, whether it is a loss) and value."""
    values: dict[tuple[str, bool], Any] = {
        (name, metric == "loss"): record.get(f"{prefix}_{metric}")
        for prefix, name in SOURCE.items()
        for metric in ("loss", "accuracy")
    }
    for metric, value in (record.get("target") or {}).items():
        values[_target(metric), metric.endswith("loss")] = value
    return ((key, value) for key, value in values.items() if _is_number(value))


def _target(metric: str) -> str:
    """The name of a target curve: of the plain model, or with rates in the mode that the metric names.

    >>> _target("accuracy"), _target("batch"), _target("batch_loss")
    ('target', 'target, batch', 'target, batch')
    """
    return "target" if metric in ("accuracy", "loss") else f"target, {metric.removesuffix('_loss')}"


def _data(curves: Sequence[Curve]) -> Data:
    """One row per round, one column per curve."""
    columns = list(dict.fromkeys((curve.name, curve.loss) for curve in curves))
    rows: dict[tuple[Value, ...], list[Value]] = {}
    for curve in curves:
        column = columns.index((curve.name, curve.loss))
        for x, y in curve.points:
            key = (curve.case, curve.seed, curve.stage, x)
            rows.setdefault(key, [None] * len(columns))[column] = y
    names = [f"{name}, {'loss' if loss else 'accuracy'}" for name, loss in columns]
    return Data(["case", "seed", "stage", "round", *names], [[*key, *row] for key, row in rows.items()])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _panel(curves: Sequence[Curve], layout: Layout) -> list[Html]:
    """Charts and their legend; lines are drawn in its order."""
    used = [line for line in layout.classes if line in set(map(layout.line, curves))]
    ordered = sorted(curves, key=lambda curve: used.index(layout.line(curve)))
    charts = []
    for title in dict.fromkeys(map(layout.chart, curves)):
        for metric in ("loss", "accuracy"):
            is_loss = metric == "loss"
            chosen = [curve for curve in ordered if (layout.chart(curve), curve.loss) == (title, is_loss)]
            if chosen:
                charts.append(_chart(title, metric, chosen, layout))
    keys = [(f"stroke {layout.classes[line]}", line) for line in used]
    if any(map(layout.smooths, curves)):
        keys.append(("stroke s0 faint", f"as measured; strong lines are means over {2 * WINDOW + 1} points"))
    return [element("div", charts, class_="multiples pairs-of-two"), legend(keys)] if charts else []


def _chart(title: str, metric: str, curves: Sequence[Curve], layout: Layout) -> Html:
    factor, unit = (1, "") if metric == "loss" else (100, ", %")
    rounds = covering(x for curve in curves for x, _ in curve.points)
    canvas = Canvas(
        Axis(rounds, "round", ticks=[tick for tick in rounds.ticks() if tick.is_integer()]),
        Axis(covering(factor * y for curve in curves for _, y in curve.points), metric + unit),
        height=180,
    )
    lines = [_line(canvas, curve, factor, metric, layout) for curve in curves]
    title = f"{title}: {metric}"
    chart = canvas.drawn(listed(title, layout.panel), f"{len(curves)} lines over the rounds.", lines)
    return element("div", element("h5", title), chart)


def _line(canvas: Canvas, curve: Curve, factor: float, metric: str, layout: Layout) -> Iterator[Html]:
    points = [(x, factor * y) for x, y in curve.points]
    line, class_ = layout.line(curve), layout.classes[layout.line(curve)]
    if layout.smooths(curve):
        yield canvas.path(points, f"{class_} faint")
        points, metric = _running_means(points), f"running mean of {metric}"
    yield canvas.path(points, class_)
    step = math.ceil(len(points) / MAX_POINTS)
    for x, y in points[::-step][::-1]:  # always including the last
        label = f"{line}, round {x}: {metric} {short(y)}, seed {curve.seed}"
        yield canvas.point(x, y, label, class_ if step == 1 else f"{class_} small", r=2.5)


def _running_means(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The mean over the points around each one, in a window that shrinks symmetrically at the ends."""
    means = []
    for place, (x, _) in enumerate(points):
        reach = min(WINDOW, place, len(points) - 1 - place)
        means.append((x, fmean(y for _, y in points[place - reach : place + reach + 1])))
    return means
