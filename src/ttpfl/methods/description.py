"""What there is to know about a method, from its registration alone."""

import inspect
from dataclasses import dataclass, fields
from typing import Any

from ttpfl.methods.base import get


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter."""

    name: str
    default: Any
    grid: tuple[Any, ...]
    """The values that it is tuned over; none, if it is not tuned."""
    help: str


@dataclass(frozen=True)
class Description:
    """A method in words."""

    name: str
    adapts: str
    """What adapts, in one sentence."""
    details: str
    needs: tuple[str, ...]
    """What it needs from the source side."""
    paper: str
    parameters: tuple[Parameter, ...]


def describe(name: str) -> Description:
    """Everything about the method of that name.

    >>> described = describe("bn-adapt")
    >>> described.adapts
    "BatchNorm's mean and variance are mixed from the stored ones and the batch's; nothing is learned."
    >>> described.parameters[0].default
    16.0
    >>> describe("atp-online").needs, describe("bbse").needs
    (('learned rates',), ('summaries of source clients',))
    """
    method = get(name)
    adapts, _, details = (inspect.getdoc(method) or "").partition("\n")
    parameters = [
        Parameter(
            entry.name, entry.default, tuple(entry.metadata.get("grid", ())), entry.metadata.get("help", "")
        )
        for entry in fields(method)
    ]
    needs = []
    if (rates := method.needs_rates) is not None:
        needs.append("learned rates" if rates == "all" else f"learned rates of {rates} only")
    if method().needs_source:
        needs.append("summaries of source clients")
    return Description(name, adapts, details.strip(), tuple(needs), method.paper, tuple(parameters))
