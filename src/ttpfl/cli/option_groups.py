"""Option groups: a dataclass parameter of a command becomes one option per field."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

Command = Callable[..., None]


def with_groups(panels: Mapping[str, str] | None = None) -> Callable[[Command], Command]:
    """Expand dataclass parameters of a command into options.

    A field is annotated with its `typer.Option`, or has its help text in its metadata.

    Args:
        panels: Panels of the help page by title, each with the names of its options in order. Other options
            come first in their panel.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Settings:
    ...     rounds: int = field(default=3, metadata={"help": "number of rounds"})
    >>> @with_groups()
    ... def command(name: str, settings: Settings) -> None:
    ...     print(name, settings)
    >>> list(inspect.signature(command).parameters)
    ['name', 'rounds']
    >>> command(name="north", rounds=5)
    north Settings(rounds=5)
    """
    panel_of = {name: panel for panel, names in (panels or {}).items() for name in names.split()}
    place_of = {name: place for place, name in enumerate(panel_of, start=1)}

    def decorate(command: Command) -> Command:
        declared = inspect.signature(command, eval_str=True).parameters
        types = {name: parameter.annotation for name, parameter in declared.items()}
        groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
        expanded = [
            option.replace(
                kind=option.KEYWORD_ONLY, annotation=_shown_in(panel_of.get(option.name), option.annotation)
            )
            for name, parameter in declared.items()
            for option in (_options(groups[name]) if name in groups else [parameter])
        ]
        parameters = sorted(expanded, key=lambda option: place_of.get(option.name, 0))

        @wraps(command)
        def run(**values: Any) -> None:
            for name, group in groups.items():
                values[name] = group(**{entry.name: values.pop(entry.name) for entry in fields(group)})
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in parameters}
        return run

    return decorate


def _options(group: Any) -> Iterator[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    for entry in fields(group):
        annotation = types[entry.name]
        if text := entry.metadata.get("help"):
            annotation = Annotated[annotation, typer.Option(help=f"{text[:1].upper()}{text[1:]}.")]
        default = inspect.Parameter.empty if entry.default is MISSING else entry.default
        yield inspect.Parameter(
            entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )


def _shown_in(panel: str | None, annotation: Any) -> Any:
    if panel is None:
        return annotation
    kind, option = get_args(annotation)
    option = copy(option)  # other commands share it
    option.rich_help_panel = panel
    return Annotated[kind, option]
