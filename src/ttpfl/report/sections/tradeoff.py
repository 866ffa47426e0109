"""Methods under feature and label shift: which help under one and harm under the other."""

from collections.abc import Iterator

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.chart import Axis, Canvas
from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import plain, signed
from ttpfl.report.parts import Data, Section, figure
from ttpfl.report.placing import free_sides
from ttpfl.report.scale import covering
from ttpfl.report.study import Case, Study

HEIGHT = 380
WIDTHS = {"narrow": 290, "wide": 620}  # plot widths in pixels for which labels are placed
CHARACTER = 6.6  # pixels
PLACES = {
    "right": (8, 4, "start"),
    "left": (-8, 4, "end"),
    "above": (0, -9, "middle"),
    "below": (0, 17, "middle"),
}


def tradeoff(study: Study) -> Section | None:
    """A scatter plot, if there are cases named feature and label."""
    feature, label = study.case("feature"), study.case("label")
    if feature is None or label is None:
        return None
    names = [name for name in feature.lines if name in label.lines]
    places = [(feature.lines[name].accuracy, label.lines[name].accuracy) for name in names]
    canvas = Canvas(
        Axis(covering(x for x, _ in places), f"{study.metric} under feature shift, %"),
        Axis(covering(y for _, y in places), f"{study.metric} under label shift, %"),
        HEIGHT,
    )
    points = [
        canvas.point(*place, _label(name, feature, label), _class(name, study), r=5)
        for name, place in zip(names, places, strict=True)
    ]
    texts = [_texts(canvas, names, places, kind) for kind in WIDTHS]
    title = "Methods under feature and label shift"
    description = f"{len(names)} methods as points; further right and up is better."
    body = canvas.drawn(title, description, _cross(canvas, feature, label), points, texts, class_="tall")
    caption = (
        f"Mean {study.metric} of each method under feature shift and under label shift. The lines mark no "
        "adaptation: methods left of the vertical or below the horizontal line harm under that shift."
    )
    data = Data(["method", "feature", "label"], [[n, x, y] for n, (x, y) in zip(names, places, strict=True)])
    return Section("tradeoff", "Feature against label shift", figure("tradeoff-figure", caption, body, data))


def _cross(canvas: Canvas, feature: Case, label: Case) -> Iterator[Html]:
    if BASELINE not in feature.lines or BASELINE not in label.lines:
        return
    x, y = canvas.left(feature.lines[BASELINE].accuracy), canvas.top(label.lines[BASELINE].accuracy)
    yield element("line", class_="zero", x1=x, x2=x, y1=0, y2=HEIGHT)
    yield element("line", class_="zero", x1="0", x2="100%", y1=y, y2=y)


def _class(name: str, study: Study) -> str:
    return "baseline" if name == BASELINE else "s1" if name == study.order[0] else "s0"


def _label(name: str, feature: Case, label: Case) -> str:
    parts = []
    for case in (feature, label):
        line = case.lines[name]
        change = f" ({signed(line.difference)})" if name != BASELINE else ""
        parts.append(f"{case.name} {plain(line.accuracy)} %{change}")
    return f"{name}: {', '.join(parts)}"


def _texts(canvas: Canvas, names: list[str], places: list[tuple[float, float]], kind: str) -> Html:
    """Names next to their points, where there is room at that width."""
    width = WIDTHS[kind]
    pixels = [(canvas.x.scale(x) * width, canvas.top(y)) for x, y in places]
    sides = free_sides(pixels, [CHARACTER * len(name) for name in names], (-30, -8, width + 20, HEIGHT + 4))
    texts = []
    for name, (x, y), side in zip(names, places, sides, strict=True):
        if side is not None:
            dx, dy, anchor = PLACES[side]
            left, top = canvas.left(x), canvas.top(y)
            texts.append(element("text", name, x=left, y=top, dx=dx, dy=dy, class_=anchor))
    return element("g", texts, class_=f"names {kind}", aria_hidden="true")
