"""The comparison of methods: an overview of all cases, and each case in full."""

import math

from ttpfl.evaluation.summary import BASELINE, RESAMPLES, Line, Spread
from ttpfl.report.chart import percent
from ttpfl.report.markup import Html, element, joined
from ttpfl.report.numbers import DASH, capital, ends, listed, plain, signed, words
from ttpfl.report.parts import (
    METHOD,
    Cell,
    Column,
    Data,
    Section,
    Value,
    dot,
    figure,
    method_cell,
    panels,
    table,
)
from ttpfl.report.scale import Scale, covering
from ttpfl.report.sections.overview import accuracy, marks, over_seeds, overview, with_spread
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import HEADLINES

VS_NONE = [
    Column("Vs. none", "difference from no adaptation, in points"),
    Column("95 % interval", "of that difference, paired by client"),
    Column("Plot", "the difference and its interval; the dashed line is zero", sortable=False),
    Column("Harmed", "clients that are worse than without adaptation"),
]
VS_PAPER = [
    Column("Paper", "the paper's accuracy"),
    Column("Vs. paper", "measured minus the paper's, in points"),
]
MORE = [
    Column("Worst tenth", "mean over the worst tenth of clients"),
    Column("ECE", "expected calibration error"),
]


def comparison(study: Study) -> Section:
    """Tables in which the highest accuracy is bold and the second underlined."""
    tables = panels("Case", {case.name: _table(case, study.metric) for case in study.cases})
    full = figure("comparison-table", _caption(study), tables, _data(study))
    body = joined(overview(study), full) if len(study.cases) > 1 else full
    return Section("comparison", "Comparison", body)


def _table(case: Case, metric: str) -> Html:
    """A row for each method; columns without figures are omitted."""
    has_none, has_paper = BASELINE in case.lines, bool(case.paper)
    main = Column(capital(metric), "mean over clients, in percent")
    others = _other_scores(case, metric)
    columns = [METHOD, main, *VS_NONE * has_none, *VS_PAPER * has_paper]
    columns += [Column(capital(HEADLINES[name]), "mean over clients, in percent") for name in others]
    columns += MORE
    mark = marks({label: line.accuracy for label, line in case.lines.items()})
    scale = covering(
        (end for line in case.lines.values() for end in line.interval or (line.difference,)), also=[0]
    )
    rows = [
        [
            method_cell(label),
            accuracy(case, label, mark),
            *(_vs_none(line, scale) if has_none else ()),
            *(_vs_paper(case, label) if has_paper else ()),
            *(Cell(plain(line.scores.get(name)), line.scores.get(name), "quiet") for name in others),
            Cell(plain(line.worst_decile), line.worst_decile),
            Cell(plain(line.ece, 3), line.ece, "quiet"),
        ]
        for label, line in case.lines.items()
    ]
    return table(listed("Comparison", case.name), columns, rows, "wide")


def _other_scores(case: Case, metric: str) -> list[str]:
    """Metrics besides the main one that were measured."""
    return [
        name
        for name, words in HEADLINES.items()
        if words != metric and any(name in line.scores for line in case.lines.values())
    ]


def _vs_none(line: Line, scale: Scale) -> list[Cell]:
    if line.method == BASELINE:
        return [Cell(DASH, 0.0), Cell(DASH, 0.0, "quiet"), Cell(None), Cell(DASH, 0.0)]
    verdict = ""
    if line.interval is not None:
        low, high = line.interval
        verdict = "gain" if low > 0 else "harm" if high < 0 else ""
    return [
        Cell(signed(line.difference), line.difference, verdict),
        Cell(ends(line.interval), None if line.interval is None else line.interval[0], "quiet"),
        Cell(_whisker(scale, line, verdict)),
        Cell(str(line.harmed), line.harmed),
    ]


def _vs_paper(case: Case, label: str) -> list[Cell]:
    mean, spread = case.paper.get(label, Spread(math.nan))
    difference = case.vs_paper(label)
    return [Cell(with_spread(plain(mean), spread), mean, "quiet"), Cell(signed(difference), difference)]


def _whisker(scale: Scale, line: Line, verdict: str) -> Html:
    """The difference as a dot on its interval, if there is one; a dashed line marks zero."""
    zero = percent(scale(0))
    lines = [element("line", class_="zero", x1=zero, x2=zero, y1="0", y2="20")]
    if line.interval is not None:
        low, high = (percent(scale(end)) for end in line.interval)
        lines.append(element("line", class_="span", x1=low, x2=high, y1="10", y2="10"))
    return dot(scale(line.difference), *lines, class_=verdict)


def _caption(study: Study) -> str:
    text = f"Mean {study.metric} over clients in percent{over_seeds(study)}; highest bold, second underlined."
    if BASELINE not in study.common:
        return text
    of_seeds = " of all seeds" * (len(study.seeds) > 1)
    return (
        f"{text} Vs. none: the difference from no adaptation, coloured if its interval excludes zero. The "
        f"interval is a paired bootstrap over clients{of_seeds} ({RESAMPLES:,} resamples). Harmed: clients"
        f"{of_seeds} that lose {study.metric}, out of {_clients(study)}."
        f"{' A single client gives no interval.' * any(case.clients == 1 for case in study.cases)}"
    )


def _clients(study: Study) -> str:
    numbers = {case.clients for case in study.cases}
    if len(numbers) == 1:
        return f"{numbers.pop()}" + " in each case" * (len(study.cases) > 1)
    return words([f"{case.clients} ({case.name})" for case in study.cases])


def _data(study: Study) -> Data:
    rows: list[list[Value]] = []
    others = list(dict.fromkeys(name for case in study.cases for name in _other_scores(case, study.metric)))
    for case in study.cases:
        for label, line in case.lines.items():
            change = (line.difference, *(line.interval or (None, None)))
            paper = case.paper.get(label, (None, None))
            counts = (line.harmed, case.clients)
            rest = (
                line.worst_decile,
                line.loss,
                line.ece,
                line.entropy,
                *(line.scores.get(name) for name in others),
            )
            rows.append([case.name, label, *case.accuracy[label], *change, *paper, *counts, *rest])
    figures = "sd difference low high paper paper_sd harmed clients worst_tenth loss ece entropy"
    return Data(["case", "method", study.metric, *figures.split(), *others], rows)
