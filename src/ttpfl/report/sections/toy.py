"""The toy example of negative rates: histograms of two classes before and after adaptation."""

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
"""Counts per bin, by class."""


def toy(study: Study) -> Section | None:
    """A chart for each situation, one of which is shown."""
    example = study.toy
    if example is None:
        return None
    edges, situations = example["histograms"]["edges"], dict(_situations(example))
    charts = {title: _chart(title, edges, counts) for title, counts in situations.items()}
    learned = ", ".join(f"{name} {rate:.2f}" for name, rate in example["learned"]["rates"].items())
    caption = (
        "Histogram of the samples of each class. The sign of the model's output is the predicted class. "
        f"Rates learned on this example: {learned}."
    )
    keys = [(tone, f"class {name}") for name, tone in CLASSES.items()]
    content = figure(
        "toy-figure", caption, [panels("Histogram", charts), legend(keys)], _data(edges, situations)
    )
    return Section("toy", "Why a rate may be negative", content)


def _situations(example: ToyExample) -> Iterator[tuple[str, Counts]]:
    before, after = example["histograms"]["before"], example["histograms"]["after"]
    yield "inputs in training", before["training"]
    yield "inputs at the new client", before["testing"]
    for line, counts in zip(example["alphas"], after, strict=True):
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
