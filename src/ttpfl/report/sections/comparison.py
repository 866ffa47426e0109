"""The comparison of methods: over all cases, and each case in full."""

import math
from collections.abc import Mapping

from ttpfl.report.chart import percent
from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.numbers import plain, signed, words
from ttpfl.report.parts import Cell, Column, Data, Section, Value, figure, panels, table
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import BASELINE, Case, Study

METHOD = Column("Method", numeric=False)
COLUMNS = [
    METHOD,
    Column("Accuracy", "mean over clients, in percent"),
    Column("To none", "difference to no adaptation, in points"),
    Column("95 % interval", "of that difference, paired by client"),
    Column("", sortable=False),
    Column("Paper", "the paper's accuracy"),
    Column("To paper", "measured less the paper's, in points"),
    Column("Harmed", "clients with a lower accuracy than without adaptation"),
    Column("Worst tenth", "mean accuracy of the tenth of clients with the lowest"),
    Column("ECE", "expected calibration error"),
]
NAMES = ["case", "method", "accuracy", "sd", "difference", "low", "high", "paper", "paper_sd", "harmed", "clients", "worst_tenth", "ece"]


def comparison(study: Study) -> Section:
    """Tables in which the best is bold and the second underlined."""
    tables = panels("Case", {case.name: _detail(case) for case in study.cases})
    full = figure("comparison-table", _caption(study), tables, _data(study))
    return Section(
        "comparison", "Comparison", joined(_overview(study) if len(study.cases) > 1 else None, full)
    )


def marks(accuracies: Mapping[str, float]) -> dict[str, str]:
    """A class for the best and for the second best; those that share a place share its mark.

    >>> marks({"a": 2.0, "b": 3.0, "c": 2.0, "d": 1.0})
    {'a': 'second', 'b': 'best', 'c': 'second', 'd': ''}
    """
    places = dict(zip(sorted(set(accuracies.values()), reverse=True), ("best", "second"), strict=False))
    return {label: places.get(accuracy, "") for label, accuracy in accuracies.items()}


def _overview(study: Study) -> Html:
    columns = [METHOD, *(Column(case.name, "mean accuracy in percent") for case in study.cases)]
    columns.append(Column("Average rank", "over the cases, by accuracy"))
    marked = [marks({label: line.accuracy for label, line in case.lines.items()}) for case in study.cases]
    lowest_rank = marks({label: -rank for label, rank in study.ranks.items()})
    rows = []
    for label in study.labels:
        cells = [_name(label)]
        for case, mark in zip(study.cases, marked, strict=True):
            cells.append(_accuracy(case, label, mark.get(label, "")))
        rank = study.ranks.get(label)
        cells.append(Cell(element("span", plain(rank, 1), class_=lowest_rank.get(label)), rank))
        rows.append(cells)
    data = [
        [label, *(case.lines[label].accuracy if label in case.lines else None for case in study.cases),
         study.ranks.get(label)]
        for label in study.labels
    ]  # fmt: skip
    names = ["method", *(case.name for case in study.cases), "average_rank"]
    caption = f"Mean accuracy over clients in percent{_over_seeds(study)}. Best bold, second underlined."
    return figure("overview", caption, table("Accuracy by case", columns, rows), Data(names, data))


def _detail(case: Case) -> Html:
    mark = marks({label: line.accuracy for label, line in case.lines.items()})
    ends = [end for line in case.lines.values() for end in line.interval]
    scale = covering(ends, also=[0])
    rows = []
    for label, line in case.lines.items():
        low, high = line.interval
        harm = f"{line.harmed}" if label != BASELINE and BASELINE in case.lines else plain(None)
        compared = label != BASELINE and BASELINE in case.lines
        rows.append(
            [
                _name(label),
                _accuracy(case, label, mark[label]),
                Cell(
                    signed(line.difference) if compared else plain(None), line.difference, _verdict(low, high)
                ),
                Cell(f"{signed(low)} to {signed(high)}" if compared else plain(None), low, "quiet"),
                Cell(_whisker(scale, line.difference, low, high) if compared else None),
                Cell(
                    _with_spread(*case.paper.get(label, (math.nan, math.nan))), _first(case, label), "quiet"
                ),
                Cell(signed(case.to_paper(label)), _known(case.to_paper(label))),
                Cell(harm, line.harmed),
                Cell(plain(line.worst_decile), line.worst_decile),
                Cell(plain(line.ece, 3), _known(line.ece), "quiet"),
            ]
        )
    return table(f"Comparison, {case.name}", COLUMNS, rows, "wide")


def _name(label: str) -> Cell:
    return Cell(label, label, "baseline" if label == BASELINE else "")


def _accuracy(case: Case, label: str, mark: str) -> Cell:
    if label not in case.lines:
        return Cell(plain(None))
    accuracy = case.lines[label].accuracy
    return Cell(_with_spread(accuracy, case.spread[label], mark), accuracy)


def _with_spread(mean: float, spread: float, mark: str = "") -> Node:
    number = element("span", plain(mean), class_=mark or None)
    return joined(number, element("small", f" ±{plain(spread)}") if math.isfinite(spread) else None)


def _first(case: Case, label: str) -> Value:
    return case.paper[label][0] if label in case.paper else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _verdict(low: float, high: float) -> str:
    return "gain" if low > 0 else "harm" if high < 0 else ""


def _whisker(scale: Scale, middle: float, low: float, high: float) -> Html:
    """The difference as a point with its interval as a line; the dashed line is zero."""
    zero = percent(scale(0))
    return element(
        "svg",
        element("line", class_="zero", x1=zero, x2=zero, y1="0", y2="20"),
        element("line", class_="span", x1=percent(scale(low)), x2=percent(scale(high)), y1="10", y2="10"),
        element("circle", cx=percent(scale(middle)), cy="10", r="3.5"),
        class_=f"whisker {_verdict(low, high)}".strip(), width="140", height="20", aria_hidden="true",
    )  # fmt: skip


def _over_seeds(study: Study) -> str:
    return f", mean ± standard deviation over {len(study.seeds)} seeds" if len(study.seeds) > 1 else ""


def _caption(study: Study) -> str:
    several = len(study.seeds) > 1
    return (
        f"Mean accuracy over clients in percent{_over_seeds(study)}; best bold, second underlined. "
        "The interval of the difference to no adaptation is paired: "
        + ("clients of all seeds" if several else "clients")
        + " are drawn again 10,000 times; coloured where it does not hold zero. "
        "Harmed are clients that had a higher accuracy without adaptation"
        + (", counted over all seeds" if several else "")
        + f", of {_numbers_of_clients(study)}."
    )


def _numbers_of_clients(study: Study) -> str:
    different = {case.clients for case in study.cases}
    if len(different) == 1:
        return f"{different.pop()}" + " in each case" * (len(study.cases) > 1)
    return words([f"{case.clients} ({case.name})" for case in study.cases])


def _data(study: Study) -> Data:
    rows: list[list[Value]] = []
    for case in study.cases:
        for label, line in case.lines.items():
            paper = case.paper.get(label, (None, None))
            rows.append(
                [case.name, label, line.accuracy, case.spread[label], line.difference, *line.interval, *paper,
                 line.harmed, case.clients, line.worst_decile, line.ece]
            )  # fmt: skip
    return Data(NAMES, rows)
