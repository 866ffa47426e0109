"""The cost of methods: time and memory."""

import math

from ttpfl.evaluation.summary import Line
from ttpfl.report.markup import element
from ttpfl.report.numbers import capital, plain, size
from ttpfl.report.parts import METHOD, Cell, Column, Data, Section, Value, dot, figure, method_cell, table
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import Study
from ttpfl.results.schema import COST

KILOBYTE = 1000  # bytes; less memory is not plotted
TRACK = element("line", class_="track", x1="0", x2="100%", y1="10", y2="10")
COLUMNS = [
    METHOD,
    Column("Cost", "time, as a multiple of the plain model's"),
    Column("Plot", "on a logarithmic scale", sortable=False),
    Column("Memory", "in addition to the model"),
    Column("Plot", "on a logarithmic scale", sortable=False),
]


def cost(study: Study) -> Section | None:
    """A table with a dot on a logarithmic scale for each figure."""
    lines = [line for line in map(study.overall.__getitem__, study.common) if math.isfinite(line.time)]
    if not lines:
        return None
    times = covering((line.time for line in lines), also=[1.0], log=True)
    memory = covering((line.extra_bytes for line in lines if line.extra_bytes >= KILOBYTE), log=True)
    rows = [_row(line, times, memory) for line in lines]
    caption = (
        f"{COST} Memory is what a method stores in addition to the model. Medians over clients, on "
        "logarithmic scales. Times vary from run to run."
    )
    values: list[list[Value]] = [[line.method, line.time, line.extra_bytes, line.accuracy] for line in lines]
    data = Data(["method", "cost", "extra_bytes", study.metric], values)
    columns = [*COLUMNS, Column(capital(study.metric), "mean over all clients, in percent")]
    return Section("cost", "Cost", figure("cost-table", caption, table("Cost", columns, rows), data))


def _row(line: Line, times: Scale, memory: Scale) -> list[Cell]:
    return [
        method_cell(line.method),
        Cell(f"{plain(line.time, 1)}\N{MULTIPLICATION SIGN}", line.time),
        Cell(dot(times(line.time), TRACK)),
        Cell(size(line.extra_bytes), line.extra_bytes),
        Cell(dot(memory(line.extra_bytes), TRACK) if line.extra_bytes >= KILOBYTE else None),
        Cell(plain(line.accuracy), line.accuracy, "quiet"),
    ]
