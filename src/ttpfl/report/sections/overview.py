"""All methods in all cases with their average ranks, like the paper's main table."""

from collections.abc import Iterator, Mapping

from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.numbers import DASH, capital, plain
from ttpfl.report.parts import METHOD, Cell, Column, Data, Value, figure, method_cell, table
from ttpfl.report.study import Case, Ranking, Study


def overview(study: Study) -> Html:
    """A table with a column for each case."""
    columns = [METHOD, *(Column(case.name, f"mean {study.metric} in percent") for case in study.cases)]
    for ranking in study.rankings:
        paper = "; in brackets: by the paper's figures" * bool(ranking.paper)
        columns.append(Column(ranking.title.capitalize(), f"over the cases, by {study.metric}{paper}"))
    marked = [marks(_accuracies(case)) for case in study.cases]
    rows = [
        [
            method_cell(label),
            *(accuracy(case, label, mark) for case, mark in zip(study.cases, marked, strict=True)),
            *(_rank(ranking, label) for ranking in study.rankings),
        ]
        for label in study.labels
    ]
    caption = (
        f"Mean {study.metric} over clients in percent{over_seeds(study)}. Highest bold, second underlined."
    )
    if any(ranking.paper for ranking in study.rankings):
        caption += " In brackets: ranks of the same methods by the paper's figures."
    return figure("overview", caption, table(f"{capital(study.metric)} by case", columns, rows), _data(study))


def _rank(ranking: Ranking, label: str) -> Cell:
    if label not in ranking.here:
        return Cell(DASH)
    rank, mark = ranking.here[label], marks({label: -rank for label, rank in ranking.here.items()})[label]
    paper = element("small", f" ({plain(ranking.paper[label], 1)})") if label in ranking.paper else None
    return Cell(joined(_marked(plain(rank, 1), mark), paper), rank)


def marks(figures: Mapping[str, float]) -> dict[str, str]:
    """CSS classes for the best and second best; equal figures share a class.

    >>> marks({"a": 2.0, "b": 3.0, "c": 2.0, "d": 1.0})
    {'a': 'second', 'b': 'best', 'c': 'second', 'd': ''}
    """
    places = dict(zip(sorted(set(figures.values()), reverse=True), ("best", "second"), strict=False))
    return {label: places.get(figure, "") for label, figure in figures.items()}


def accuracy(case: Case, label: str, mark: Mapping[str, str]) -> Cell:
    """A method's accuracy in a case, with its spread over seeds."""
    if label not in case.accuracy:
        return Cell(DASH)
    mean, spread = case.accuracy[label]
    return Cell(with_spread(_marked(plain(mean), mark[label]), spread), mean)


def with_spread(mean: Node, spread: float) -> Node:
    """A mean and, if known, its standard deviation."""
    text = plain(spread)
    return mean if text == DASH else joined(mean, element("small", f" \N{PLUS-MINUS SIGN}{text}"))


def over_seeds(study: Study) -> str:
    """What the spread is, or why there is none."""
    seeds = len(study.seeds)
    if seeds == 1:
        return " (a single seed gives no spread)"
    return f", mean \N{PLUS-MINUS SIGN} standard deviation over {seeds} seeds"


def _marked(text: str, mark: str | None) -> Node:
    return element("span", text, class_=mark) if mark else text


def _accuracies(case: Case) -> dict[str, float]:
    return {label: spread.mean for label, spread in case.accuracy.items()}


def _data(study: Study) -> Data:
    of_cases = [_accuracies(case) for case in study.cases]
    rows: list[list[Value]] = [
        [label, *(accuracies.get(label) for accuracies in of_cases), *_ranks(study, label)]
        for label in study.labels
    ]
    titles = [title for ranking in study.rankings for title in (ranking.title, f"{ranking.title}, paper")]
    return Data(["method", *(case.name for case in study.cases), *titles], rows)


def _ranks(study: Study, label: str) -> Iterator[Value]:
    for ranking in study.rankings:
        yield ranking.here.get(label)
        yield ranking.paper.get(label)
