"""Rates for people: a summary by block and kind, and the full listing."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from ttpfl.core.network import ModuleSpec

BAR = 12  # characters on each side of zero


def summary(modules: Sequence[ModuleSpec], rates: Mapping[str, Tensor]) -> str:
    """The mean rate of each kind of module (columns) in each block (rows)."""
    kinds = list(dict.fromkeys(spec.kind for spec in modules))
    blocks = list(dict.fromkeys(spec.block for spec in modules))
    rows = [["block", *kinds]]
    for block in blocks:
        cells = [
            _mean(float(rates[s.name]) for s in modules if (s.block, s.kind) == (block, kind))
            for kind in kinds
        ]
        rows.append([block, *cells])
    return "\n".join(_aligned(rows))


def listing(groups: Mapping[str, Sequence[ModuleSpec]], values: Tensor) -> str:
    """Every rate with a bar, under its block, sorted by kind."""
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
    return "\n".join(_aligned([["block", "name", "kind", "rate", ""], *rows]))


def _shared(values: Iterable[str]) -> str:
    different = set(values)
    return different.pop() if len(different) == 1 else "*"


def _mean(values: Iterable[float]) -> str:
    values = list(values)
    return f"{sum(values) / len(values):+.3g}" if values else ""


def _bar(value: float, largest: float) -> str:
    length = round(abs(value) / largest * BAR) if largest else 0
    left, right = ("", "#" * length) if value >= 0 else ("#" * length, "")
    return f"{left:>{BAR}}|{right}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
