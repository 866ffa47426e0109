"""Bounds as tables."""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ttpfl.cli.bound_numbers import Numbers
from ttpfl.cli.output import rows_table

if TYPE_CHECKING:
    from rich.table import Table

MOST_DIGITS = 15
CONVERGENCE = {
    "from the initial rates": "start",
    "from batches that differ": "noise",
    "from local steps on batches that differ": "batch_drift",
    "from local steps at clients that differ": "client_drift",
    "total": "total",
    "(largest learning rate for which this holds)": "largest_eta",
}


def bound_tables(numbers: Numbers, origins: dict[str, str], bounds: dict[str, Any]) -> "Iterator[Table]":
    """The numbers, the generalisation bound and, if there is one, the convergence bound."""
    rows = []
    for entry in fields(numbers):
        if origin := origins.get(entry.name):
            text, value = entry.metadata["help"].partition(";")[0], _figure(getattr(numbers, entry.name))
            rows.append({"number": text, "value": value, "origin": origin})
    yield rows_table(rows, right=["value"])
    yield _generalisation(numbers, bounds)
    if parts := bounds["convergence"]:
        title = "convergence: mean loss of all steps above the smallest"
        rows = [{title: part, "at most": _figure(parts[name])} for part, name in CONVERGENCE.items()]
        yield rows_table(rows, right=["at most"])


def _generalisation(numbers: Numbers, bounds: dict[str, Any]) -> "Table":
    columns = {
        "rates fixed before": bounds["one_alpha"],
        f"all rates of norm up to {numbers.radius_r:g}": bounds["all_alpha"],
    }
    columns = {title: bound for title, bound in columns.items() if bound is not None}
    epsilon, failure = f"{numbers.epsilon:g}", f"{numbers.failure:g}"

    def row(title: str, name: str, show: Callable[[float], str]) -> dict[str, str]:
        return {"generalisation": title, **{column: show(bound[name]) for column, bound in columns.items()}}

    needed = f"source clients needed (difference {epsilon}, probability {failure})"
    rows = [row(needed, "clients_needed", _figure)]
    if numbers.clients_n is not None:
        rows += [
            row(f"probability of a difference of {epsilon} or more, at most", "log_bound", _probability),
            row(f"difference that has probability {failure}, at most", "epsilon_guaranteed", _difference),
        ]
    return rows_table(rows, right=columns)


def _figure(value: float) -> str:
    """Integers in full unless very long, three digits of other numbers.

    >>> _figure(1108502), _figure(10**400 // 3), _figure(0.123456)
    ('1,108,502', '3.33e+399', '0.123')
    """
    if isinstance(value, int):
        return f"{value:,}" if value < 10**MOST_DIGITS else f"{Decimal(value):.2e}"
    return f"{value:.3g}"


def _probability(log: float) -> str:
    """A bound from its logarithm, as a power of ten if very large or small.

    >>> _probability(math.log(0.77)), _probability(-2302.6), _probability(1897.4), _probability(0.5)
    ('0.77', '10^-1000', 'vacuous (10^824)', 'vacuous (1.65)')
    """
    text = _figure(math.exp(log)) if -20 < log < 10 else f"10^{log / math.log(10):.0f}"
    return f"vacuous ({text})" if log >= 0 else text


def _difference(epsilon: float) -> str:
    return _figure(epsilon) if epsilon < 1 else f"vacuous ({_figure(epsilon)})"
