"""Bounds as tables."""

import math
from collections.abc import Iterator
from dataclasses import fields
from decimal import Decimal
from typing import Any

from rich import box
from rich.table import Table

from ttpfl.cli.bound_numbers import Numbers

MOST_DIGITS = 15


def bound_tables(numbers: Numbers, origins: dict[str, str], found: dict[str, Any]) -> Iterator[Table]:
    """The numbers, what they mean for generalisation, and for convergence if that was asked."""
    yield _numbers(numbers, origins)
    yield _generalisation(numbers, found)
    if found["convergence"] is not None:
        yield _convergence(found["convergence"])


def _numbers(numbers: Numbers, origins: dict[str, str]) -> Table:
    table = Table("number", "value", "origin", box=box.SIMPLE_HEAD)
    table.columns[1].justify = "right"
    for entry in fields(numbers):
        if entry.name in origins:
            value = getattr(numbers, entry.name)
            table.add_row(entry.metadata["help"].partition(";")[0], _figure(value), origins[entry.name])
    return table


def _generalisation(numbers: Numbers, found: dict[str, Any]) -> Table:
    columns = {
        "rates fixed before": found["one_alpha"],
        f"all rates of norm up to {numbers.radius_r:g}": found["all_alpha"],
    }
    known = {title: said for title, said in columns.items() if said is not None}
    table = Table("generalisation", *known, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row(
        f"source clients needed (difference {numbers.epsilon:g}, chance {numbers.failure:g})",
        *(_figure(said["clients_needed"]) for said in known.values()),
    )
    if numbers.clients_n is not None:
        table.add_row(
            f"chance of a difference of {numbers.epsilon:g} or more, at most",
            *(_probability(said["log_bound"]) for said in known.values()),
        )
        table.add_row(
            f"difference that has a chance of {numbers.failure:g}, at most",
            *(_difference(said["epsilon_guaranteed"]) for said in known.values()),
        )
    return table


def _convergence(parts: dict[str, float]) -> Table:
    table = Table("convergence: mean loss of all steps above the smallest", "at most", box=box.SIMPLE_HEAD)
    table.columns[1].justify = "right"
    for title, name in (
        ("from where the rates begin", "start"),
        ("from batches that differ", "noise"),
        ("from local steps on batches that differ", "batch_drift"),
        ("from local steps at clients that differ", "client_drift"),
        ("in all", "total"),
        ("(step size for which this holds)", "largest_eta"),
    ):
        table.add_row(title, _figure(parts[name]))
    return table


def _figure(value: float) -> str:
    """Whole numbers in full, unless they are very long.

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
    plain = -20 < log < 10
    text = _figure(math.exp(log)) if plain else f"10^{log / math.log(10):.0f}"
    return f"vacuous ({text})" if log >= 0 else text


def _difference(epsilon: float) -> str:
    return _figure(epsilon) if epsilon < 1 else f"vacuous ({_figure(epsilon)})"
