"""What a guard estimated without labels at every client, beside the truth."""

from statistics import fmean
from typing import Any

from ttpfl.report.numbers import listed, plain
from ttpfl.report.parts import Cell, Column, Data, Section, figure, panels, table
from ttpfl.report.sections.clients import describe
from ttpfl.report.study import Study
from ttpfl.results.schema import GUARDED, MethodResult, Run

COLUMNS = [
    Column("Client", numeric=False),
    Column("Accuracy", "with the labels, in percent"),
    Column("Estimate", "without labels, by the guard"),
    Column("Interval", "95 %, of the estimate", numeric=False),
    Column("Stopped", "how often the guard stopped adaptation"),
]


def guards(study: Study) -> Section | None:
    """A table for each run and each method with a guard."""
    found = [(run, entry) for run in study.results["runs"] for entry in run["entries"] if "guard" in entry]
    if not found:
        return None
    rows = [row for run, entry in found for row in _rows(run, entry)]
    error = 100 * fmean(abs(accuracy - estimate) for _, accuracy, estimate, *_ in rows)
    inside = sum(low <= accuracy <= high for _, accuracy, _, low, high, *_ in rows)
    caption = (
        "The accuracy of each client, and what the guard estimates without labels at the end of the stream "
        "for the model that answers then. After a noticed change of the stream, the estimate is about the "
        f"part since then. Estimates are off by {plain(error)} points on average; {inside} of {len(rows)} "
        "intervals contain the accuracy. A star: adaptation is stopped at the end."
    )
    tables = {
        listed(study.title(run["case"], run["seed"]), entry["label"]): table(
            listed("Guard", run["case"], entry["label"]), COLUMNS, [_cells(*row) for row in _rows(run, entry)]
        )
        for run, entry in found
    }
    data = Data(
        ["case", "seed", "method", "client", "accuracy", *GUARDED],
        [
            [run["case"], run["seed"], entry["label"], *row]
            for run, entry in found
            for row in _rows(run, entry)
        ],
    )
    content = figure("guards-table", caption, panels("Run and method", tables), data)
    return Section("guards", "Accuracy estimated without labels", content)


def _rows(run: Run, entry: MethodResult) -> list[list[Any]]:
    """For each client its name and accuracy, and what the guard said in the order of `GUARDED`."""
    said: dict[str, Any] = {**entry["guard"]}
    columns = [map(describe, run["clients"]), entry["accuracy"], *(said[name] for name in GUARDED)]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(
    client: str,
    accuracy: float,
    estimate: float,
    low: float,
    high: float,
    _: float,
    alarms: int,
    stopped: int,
) -> list[Cell]:
    percent = [plain(100 * value) for value in (accuracy, estimate, low, high)]
    return [
        Cell(client, client),
        Cell(percent[0], accuracy),
        Cell(percent[1], estimate),
        Cell(f"{percent[2]} to {percent[3]}", low),
        Cell(f"{alarms}{'*' if stopped else ''}", alarms, "harm" if stopped else "quiet"),
    ]
