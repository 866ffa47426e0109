"""Accuracy over a number that the cases vary, as in `cohort=15`, `cohort=30`, `cohort=60`."""

import re
from collections import defaultdict
from collections.abc import Iterator

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.chart import Axis, Canvas, axis_note
from ttpfl.report.markup import Html, element, joined
from ttpfl.report.numbers import capital, clipped, plain, short
from ttpfl.report.parts import Data, Section, figure
from ttpfl.report.placing import spread_out
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import Case, Study

NUMBERED = re.compile(r"(.+?)\s*=\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)", re.I)
COLOURED = 5  # methods; the others are grey


def variation(study: Study) -> Section | None:
    """A line chart for each name to which at least two cases give a number."""
    named = varied(study.cases)
    if not named:
        return None
    body = joined(*(_figure(study, name, cases) for name, cases in named.items()))
    return Section("variation", f"{capital(study.metric)} over " + ", ".join(named), body)


def varied(cases: tuple[Case, ...]) -> dict[str, dict[float, Case]]:
    """Cases by the name and number in their names, in the order of the numbers."""
    by_name: dict[str, dict[float, Case]] = defaultdict(dict)
    for case in cases:
        if match := NUMBERED.fullmatch(case.name):
            by_name[match[1]][float(match[2])] = case
    return {name: dict(sorted(cases.items())) for name, cases in by_name.items() if len(cases) > 1}


def _figure(study: Study, name: str, cases: dict[float, Case]) -> Html:
    labels = [label for label in study.order if label != BASELINE] + [BASELINE] * (BASELINE in study.common)
    lines = {label: [(x, case.lines[label].accuracy) for x, case in cases.items()] for label in labels}
    canvas = Canvas(
        Axis(_scale(list(cases)), name, ticks=list(cases)),
        Axis(covering(y for line in lines.values() for _, y in line), f"mean {study.metric}, %"),
        height=300,
    )
    classes = dict.fromkeys(labels, "s0") | {label: f"s{n + 1}" for n, label in enumerate(labels[:COLOURED])}
    classes |= {BASELINE: "baseline"}
    drawn = reversed(labels)  # the best on top
    body = canvas.drawn(
        f"{capital(study.metric)} over {name}",
        f"One line for each of {len(labels)} methods.",
        [_line(canvas, name, label, lines[label], classes[label]) for label in drawn],
        _ends(canvas, {label: lines[label][-1][1] for label in labels if classes[label] != "s0"}, classes),
        class_="ends",
    )
    grey = f"; methods after the first {COLOURED} are grey" * ("s0" in classes.values())
    caption = f"Mean {study.metric} over clients for each {name}{grey}.{axis_note(canvas.y)}"
    rows = [[x, *(case.lines[label].accuracy for label in labels)] for x, case in cases.items()]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return figure(f"variation-{slug}", caption, body, Data([name, *labels], rows))


def _scale(numbers: list[float]) -> Scale:
    """Logarithmic if the numbers span a factor of 8."""
    low, high = numbers[0], numbers[-1]
    return Scale(low, high, log=low > 0 and high / low >= 8)


def _line(
    canvas: Canvas, name: str, label: str, points: list[tuple[float, float]], class_: str
) -> Iterator[Html]:
    yield canvas.path(points, class_)
    for x, y in points:
        yield canvas.point(x, y, f"{label}, {name} {short(x)}: {plain(y)} %", class_)


def _ends(canvas: Canvas, ends: dict[str, float], classes: dict[str, str]) -> Iterator[Html]:
    tops = spread_out([canvas.top(y) for y in ends.values()], apart=15, low=0, high=canvas.height)
    for label, top in zip(ends, tops, strict=True):
        class_ = f"end-name {classes[label]}"
        yield element("text", clipped(label, 14), x="100%", dx=10, y=top + 4, class_=class_)
