"""All methods in one table, made of what their classes say of themselves.

The first line of a method's docstring says what adapts, a paragraph that begins with "Paper:" where it comes
from, and its fields carry their help.
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
    """The values that tuning tries; empty if it leaves this one alone."""
    help: str


@dataclass(frozen=True)
class MethodInfo:
    """A method in words."""

    name: str
    adapts: str
    details: str
    needs: str
    """What it must know from source clients."""
    paper: str
    hyper_parameters: tuple[HyperParameter, ...]


def entries(of: Iterable[str] | None = None) -> list[MethodInfo]:
    """The methods of these names; all that are registered, also the user's own, if None.

    >>> [entry] = entries(["bn-adapt"])
    >>> entry.needs, entry.hyper_parameters[0].default
    ('nothing', 16.0)
    """
    return [_entry(get(name)) for name in (names() if of is None else of)]


def markdown(of: Iterable[str] | None = None) -> str:
    """The same in Markdown: a table of methods, and one of their hyper-parameters."""
    return "\n".join(tables(entries(of)))


def tables(found: Sequence[MethodInfo]) -> list[str]:
    """Methods, and their hyper-parameters, in Markdown."""
    methods = [(f"`{entry.name}`", entry.adapts, entry.needs, entry.paper or "-") for entry in found]
    hyper_parameters = [
        (
            f"`{entry.name}`",
            f"`{one.name}`",
            shown(one.default),
            ", ".join(map(shown, one.grid)) or "-",
            one.help,
        )
        for entry in found
        for one in entry.hyper_parameters
    ]
    return [
        _table(("method", "what adapts", "from source clients", "paper"), methods),
        "## Hyper-parameters\n",
        _table(("method", "name", "default", "values to try", "what it is"), hyper_parameters),
    ]


def built_in() -> list[str]:
    """The names of the methods that come with this library."""
    return [name for name in names() if get(name).__module__.startswith("ttpfl.")]


def _entry(method: type[Method]) -> MethodInfo:
    adapts, _, details = inspect.cleandoc(method.__doc__ or "").partition("\n")
    return MethodInfo(
        method.name, adapts, details.strip(), _needs(method), _paper(method), _hyper_parameters(method)
    )


def _needs(method: type[Method]) -> str:
    if method.needs_rates is not None:
        return f"learned rates ({method.needs_rates})"
    if method.summary is Method.summary:
        return "nothing"
    asked = _first_line(method.summary.__doc__)
    return asked if make(method.name).needs_source else f"nothing; if asked: {asked[0].lower()}{asked[1:]}"


def _paper(method: type[Method]) -> str:
    """Its own, or that of the method which it is a variant of."""
    for cls in method.__mro__:
        for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
            if paragraph.startswith("Paper: "):
                return " ".join(paragraph.split()).removeprefix("Paper: ")
    return ""


def _hyper_parameters(method: type[Method]) -> tuple[HyperParameter, ...]:
    return tuple(
        HyperParameter(
            entry.name,
            entry.default,
            tuple(entry.metadata.get("grid", ())),
            entry.metadata.get("help", ""),
        )
        for entry in fields(method)
    )


def _first_line(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n")[0]


def shown(value: Any) -> str:
    """A default or a value to try, as text.

    >>> shown(0.50), shown(None)
    ('0.5', 'none')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return {None: "none", "": "(empty)"}.get(value, str(value))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
