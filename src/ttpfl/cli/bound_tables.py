"""Bounds as tables."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from decimal import Decimal
from typing import Any

from rich import box
from rich.table import Column, Table

from ttpfl.cli.bound_numbers import Numbers

MOST_DIGITS = 15


def bound_tables(numbers: Numbers, origins: dict[str, str], bounds: dict[str, Any]) -> Iterator[Table]:
    """The numbers, the generalisation bound and, if there is one, the convergence bound."""
    help_of = {entry.name: entry.metadata["help"].partition(";")[0] for entry in fields(numbers)}
    rows = [
        (help_of[name], _figure(getattr(numbers, name)), origins[name]) for name in help_of if name in origins
    ]
    yield _table(["number", _right("value"), "origin"], rows)
    yield _generalisation(numbers, bounds)
    if parts := bounds["convergence"]:
        titles = {
            "from the initial rates": "start",
            "from batches that differ": "noise",
            "from local steps on batches that differ": "batch_drift",
            "from local steps at clients that differ": "client_drift",
            "total": "total",
            "(largest learning rate for which this holds)": "largest_eta",
        }
        yield _table(
            ["convergence: mean loss of all steps above the smallest", _right("at most")],
            ((title, _figure(parts[name])) for title, name in titles.items()),
        )


def _generalisation(numbers: Numbers, bounds: dict[str, Any]) -> Table:
    columns = {
        "rates fixed before": bounds["one_alpha"],
        f"all rates of norm up to {numbers.radius_r:g}": bounds["all_alpha"],
    }
    known = {title: bound for title, bound in columns.items() if bound is not None}
    epsilon, failure = f"{numbers.epsilon:g}", f"{numbers.failure:g}"

    def row(title: str, name: str, show: Callable[[float], str]) -> tuple[str, ...]:
        return (title, *(show(bound[name]) for bound in known.values()))

    rows = [
        row(f"source clients needed (difference {epsilon}, probability {failure})", "clients_needed", _figure)
    ]
    if numbers.clients_n is not None:
        rows += [
            row(f"probability of a difference of {epsilon} or more, at most", "log_bound", _probability),
            row(f"difference that has probability {failure}, at most", "epsilon_guaranteed", _difference),
        ]
    return _table(["generalisation", *map(_right, known)], rows)


def _right(title: str) -> Column:
    return Column(title, justify="right")


def _table(columns: Iterable[str | Column], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    return table


def _figure(value: float) -> str:
    """Integers in full, unless they are very long.

    >>> _figure(1108502), _figure(10**400 // 3), _figure(0.123456)
    ('1,108,502', '3.33e+399', '0.123')
    """
    if isinstance(value, int):
        return f"{value:,}" if value < 10**MOST_DIGITS else f"{Decimal(value):.2e}"
    return f"{value:.3g}"


def _probability(log: float) -> str:
    """A bound from its logarithm, as a power of ten where it is very large or very small.

    >>> _probability(math.log(0.77)), _probability(-2302.6), _probability(1897.4), _probability(0.5)
    ('0.77', '10^-1000', 'vacuous (10^824)', 'vacuous (1.65)')
    """
    text = _figure(math.exp(log)) if -20 < log < 10 else f"10^{log / math.log(10):.0f}"
    return f"vacuous ({text})" if log >= 0 else text


def _difference(epsilon: float) -> str:
    return _figure(epsilon) if epsilon < 1 else f"vacuous ({_figure(epsilon)})"
