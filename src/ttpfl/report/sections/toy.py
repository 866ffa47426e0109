"""The toy example of negative rates: how inputs and outputs of two classes lie, before and after."""

from collections.abc import Iterator
from typing import Any

from ttpfl.report.chart import Axis, Canvas
from ttpfl.report.markup import Html
from ttpfl.report.parts import Data, Section, figure, legend, panels
from ttpfl.report.scale import covering
from ttpfl.report.study import Study
from ttpfl.results.schema import ToyExample

CLASSES = {"-": "s0", "+": "s1"}

Counts = dict[str, list[int]]
"""By class, one for each bin."""


def toy(study: Study) -> Section | None:
    """A chart for each situation, with a choice between them."""
    found = study.toy
    if found is None:
        return None
    edges, situations = found["histograms"]["edges"], dict(_situations(found))
    shown = {title: _chart(title, edges, counts) for title, counts in situations.items()}
    learned = ", ".join(f"{name} {rate:.2f}" for name, rate in found["learned"]["rates"].items())
    caption = (
        "How many samples of each class lie where. The model says the class by the sign of its output. "
        f"Rates that were learned on this example: {learned}."
    )
    keys = [(tone, f"class {name}") for name, tone in CLASSES.items()]
    content = figure("toy-figure", caption, [panels("Shown", shown), legend(keys)], _data(edges, situations))
    return Section("toy", "Why a rate may be negative", content)


def _situations(found: ToyExample) -> Iterator[tuple[str, Counts]]:
    before, after = found["histograms"]["before"], found["histograms"]["after"]
    yield "inputs in training", before["training"]
    yield "inputs at the new client", before["testing"]
    for line, counts in zip(found["alphas"], after, strict=True):
        yield f"outputs there, rate {line['alpha']:g}", counts


def _chart(title: str, edges: list[float], counts: Counts) -> Html:
    most = max(max(values) for values in counts.values())
    canvas = Canvas(Axis(covering(edges), "value"), Axis(covering([0.0, float(most)]), "samples"))
    lines = [canvas.path(_steps(edges, values), CLASSES[name]) for name, values in counts.items()]
    sums = "; ".join(f"class {name}: {sum(values)} samples" for name, values in counts.items())
    return canvas.drawn(title, sums, *lines)


def _steps(edges: list[float], values: list[int]) -> list[tuple[float, float]]:
    """The outline of a histogram."""
    points = [(edges[0], 0.0)]
    for left, right, value in zip(edges, edges[1:], values, strict=False):
        points += [(left, float(value)), (right, float(value))]
    return [*points, (edges[-1], 0.0)]


def _data(edges: list[float], situations: dict[str, Counts]) -> Data:
    rows: list[list[Any]] = [
        [title, name, left, right, value]
        for title, counts in situations.items()
        for name, values in counts.items()
        for left, right, value in zip(edges, edges[1:], values, strict=False)
    ]
    return Data(["shown", "class", "from", "to", "samples"], rows)
