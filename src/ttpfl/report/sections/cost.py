"""What methods cost: time and memory."""

import math

from ttpfl.evaluation.summary import BASELINE, Line
from ttpfl.report.chart import percent
from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import plain, size
from ttpfl.report.parts import Cell, Column, Data, Section, figure, table
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import Study
from ttpfl.results.schema import COST

KILOBYTE = 1000  # bytes; less memory than that is not drawn
COLUMNS = [
    Column("Method", numeric=False),
    Column("Cost", "time, as a multiple of the plain model's"),
    Column("Drawn", "on a logarithmic scale", sortable=False),
    Column("Memory", "beside the model"),
    Column("Drawn", "on a logarithmic scale", sortable=False),
    Column("Accuracy", "mean over all clients, in percent"),
]


def cost(study: Study) -> Section | None:
    """A table with a point on a logarithmic scale for each figure."""
    lines = [study.overall[label] for label in study.common]
    known = [line for line in lines if math.isfinite(line.time)]
    if not known:
        return None
    times = covering((line.time for line in known), also=[1.0], log=True)
    memory = covering((line.extra_bytes for line in known if line.extra_bytes >= KILOBYTE), log=True)
    rows = [_row(line, times, memory) for line in known]
    caption = (
        f"{COST} Memory is what a method keeps beside the model. Medians over clients, drawn on logarithmic "
        "scales. Times vary from run to run."
    )
    data = Data(
        ["method", "cost", "extra_bytes", "accuracy"],
        [[line.method, line.time, line.extra_bytes, line.accuracy] for line in known],
    )
    return Section("cost", "Cost", figure("cost-table", caption, table("Cost", COLUMNS, rows), data))


def _row(line: Line, times: Scale, memory: Scale) -> list[Cell]:
    return [
        Cell(line.method, line.method, "baseline" if line.method == BASELINE else ""),
        Cell(f"{plain(line.time, 1)}\N{MULTIPLICATION SIGN}", line.time),
        Cell(_dot(times, line.time)),
        Cell(size(line.extra_bytes), line.extra_bytes),
        Cell(_dot(memory, line.extra_bytes) if line.extra_bytes >= KILOBYTE else None),
        Cell(plain(line.accuracy), line.accuracy, "quiet"),
    ]


def _dot(scale: Scale, value: float) -> Html:
    place = percent(scale(value))
    return element(
        "svg",
        element("line", class_="track", x1="0", x2="100%", y1="10", y2="10"),
        element("circle", cx=place, cy="10", r="3.5"),
        class_="whisker", width="120", height="20", aria_hidden="true",
    )  # fmt: skip
