"""Options of a command from the fields of a settings class: the same names, defaults and help."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer

from ttpfl.federation.settings import RENAMED


def with_settings(settings: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per field of `settings`; it gets them as the argument `settings`.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Choice:
    ...     rounds: int = field(default=3, metadata={"help": "how many"})
    >>> @with_settings(Choice)
    ... def command(name: str, settings: Choice) -> None:
    ...     print(name, settings)
    >>> list(inspect.signature(command).parameters)
    ['name', 'rounds']
    >>> command("north", rounds=5)
    north Choice(rounds=5)
    """
    types = get_type_hints(settings)
    added = [
        _parameter(entry.name, entry.default, types[entry.name], _option(**entry.metadata))
        for entry in fields(settings)
    ]
    old = {name: new for name, new in RENAMED.items() if new in types}
    added += [_parameter(name, None, types[old[name]] | None, typer.Option(hidden=True)) for name in old]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"
        ]

        def wrapped(*args: Any, **given: Any) -> None:
            chosen = {entry.name: given.pop(entry.name) for entry in added if entry.name in given}
            chosen |= {old[name]: value for name in old if (value := chosen.pop(name, None)) is not None}
            command(*args, **given, settings=settings(**chosen))

        parameters = own + added
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        return wrapped

    return decorate


def _parameter(name: str, default: Any, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _option(help: str, panel: str = "Settings", **_: Any) -> Any:
    return typer.Option(help=_sentence(help), rich_help_panel=panel)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
