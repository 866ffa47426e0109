"""Tables of all methods, generated from their classes.

The first line of a method's docstring describes it, a paragraph that starts with "Paper:" cites its paper,
and its fields have help texts.
"""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ttpfl.methods.base import Method, get, make, names


@dataclass(frozen=True)
class HyperParameter:
    """A field of a method."""

    name: str
    default: Any
    grid: tuple[Any, ...]
    """The values that tuning tries; empty if it is not tuned."""
    help: str


@dataclass(frozen=True)
class MethodInfo:
    """The description of a method."""

    name: str
    adapts: str
    details: str
    needs: str
    """What it needs from source clients."""
    paper: str
    hyper_parameters: tuple[HyperParameter, ...]


def entries(of: Iterable[str] | None = None) -> list[MethodInfo]:
    """Describe methods; all registered ones, including the user's, if None.

    >>> [entry] = entries(["bn-adapt"])
    >>> entry.needs, entry.hyper_parameters[0].default
    ('nothing', 16.0)
    """
    return [_entry(get(name)) for name in (names() if of is None else of)]


def markdown(of: Iterable[str] | None = None) -> str:
    """Tables of methods and their hyper-parameters in Markdown."""
    return "\n".join(tables(entries(of)))


def tables(infos: Sequence[MethodInfo]) -> list[str]:
    """The parts of `markdown`."""
    methods = [(f"`{info.name}`", info.adapts, info.needs, info.paper or "-") for info in infos]
    hyper_parameters = [
        (f"`{info.name}`", f"`{p.name}`", shown(p.default), ", ".join(map(shown, p.grid)) or "-", p.help)
        for info in infos
        for p in info.hyper_parameters
    ]
    return [
        _table(("method", "what adapts", "from source clients", "paper"), methods),
        "## Hyper-parameters\n",
        _table(("method", "name", "default", "values to try", "description"), hyper_parameters),
    ]


def built_in() -> list[str]:
    """The names of this library's methods."""
    return [name for name in names() if get(name).__module__.startswith("ttpfl.")]


def _entry(method: type[Method]) -> MethodInfo:
    adapts, _, details = inspect.cleandoc(method.__doc__ or "").partition("\n")
    hyper_parameters = tuple(
        HyperParameter(
            entry.name, entry.default, tuple(entry.metadata.get("grid", ())), entry.metadata.get("help", "")
        )
        for entry in fields(method)
    )
    return MethodInfo(method.name, adapts, details.strip(), _needs(method), _paper(method), hyper_parameters)


def _needs(method: type[Method]) -> str:
    if method.needs_rates is not None:
        return f"learned rates ({method.needs_rates})"
    if method.summary is Method.summary:
        return "nothing"
    summary = inspect.cleandoc(method.summary.__doc__ or "").partition("\n")[0]
    return summary if make(method.name).needs_source else f"optional: {summary[:1].lower()}{summary[1:]}"


def _paper(method: type[Method]) -> str:
    """The method's own paper, or that of its base class."""
    for cls in method.__mro__:
        for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
            if paragraph.startswith("Paper: "):
                return " ".join(paragraph.split()).removeprefix("Paper: ")
    return ""


def shown(value: Any) -> str:
    """A value of a hyper-parameter as text.

    >>> shown(0.50), shown(None)
    ('0.5', 'none')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return {None: "none", "": "(empty)"}.get(value, str(value))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
