"""Rates as text: a summary by block and kind, and the full listing."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from ttpfl.core.network import ModuleSpec

BAR = 12  # characters on each side of zero


def summary(modules: Sequence[ModuleSpec], rates: Mapping[str, Tensor]) -> str:
    """Mean rate of each kind of module (columns) in each block (rows)."""
    cells: dict[tuple[str, str], list[float]] = {}
    for spec in modules:
        cells.setdefault((spec.block, spec.kind), []).append(float(rates[spec.name]))
    blocks, kinds = dict.fromkeys(block for block, _ in cells), dict.fromkeys(kind for _, kind in cells)
    rows = [[block, *(_mean(cells.get((block, kind))) for kind in kinds)] for block in blocks]
    return _aligned([["block", *kinds], *rows])


def listing(groups: Mapping[str, Sequence[ModuleSpec]], values: Tensor) -> str:
    """List every rate with a bar, under its block, sorted by kind."""
    largest = max((abs(float(value)) for value in values), default=0.0)
    entries = [
        (_shared(spec.block for spec in specs), _shared(spec.kind for spec in specs), name, float(value))
        for (name, specs), value in zip(groups.items(), values, strict=True)
    ]
    kinds = list(dict.fromkeys(kind for _, kind, *_ in entries))
    blocks = list(dict.fromkeys(block for block, *_ in entries))
    entries.sort(key=lambda entry: (blocks.index(entry[0]), kinds.index(entry[1])))
    rows = [
        [block, name, kind, f"{value:+.4g}", _bar(value, largest)] for block, kind, name, value in entries
    ]
    return _aligned([["block", "name", "kind", "rate", ""], *rows])


def price(cost: float) -> str:
    """What it costs to personalise a batch.

    >>> price(1.0), price(1.1)
    ('a batch costs about 1 forward pass', 'a batch costs about 1.1 forward passes')
    """
    return f"a batch costs about {cost:g} forward pass{'' if cost == 1 else 'es'}"


def _shared(values: Iterable[str]) -> str:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else "*"


def _mean(values: Sequence[float] | None) -> str:
    return f"{sum(values) / len(values):+.3g}" if values else ""


def _bar(value: float, largest: float) -> str:
    length = round(abs(value) / largest * BAR) if largest else 0
    left, right = ("", "#" * length) if value >= 0 else ("#" * length, "")
    return f"{left:>{BAR}}|{right}"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
