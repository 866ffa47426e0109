"""`ttpfl methods`: which test-time methods there are, and what can be chosen about them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.options import Json
from ttpfl.cli.output import answer, markdown, rows_table

if TYPE_CHECKING:
    from ttpfl.methods.description import Description, Parameter


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A method, to see its hyper-parameters.",
            show_default=False,
            autocompletion=completion.methods,
        ),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="The table for the documentation.")] = False,
    json: Json = False,
) -> None:
    """List the test-time methods, or what one of them can be given."""
    from ttpfl.methods import names
    from ttpfl.methods.description import describe

    shown = markdown if as_markdown else rows_table
    if name is None:
        known = [describe(each) for each in names()]
        answer(known, shown([_row(each) for each in known]), as_json=json)
        return
    one = describe(name)
    parameters = [_parameter_row(each) for each in one.parameters]
    answer(one, _words(one), shown(parameters) if parameters else "no hyper-parameters", as_json=json)


def _row(method: "Description") -> dict[str, str]:
    return {
        "name": method.name,
        "what adapts": method.adapts,
        "needs": ", ".join(method.needs) or "nothing",
        "paper": method.paper or "none",
    }


def _parameter_row(parameter: "Parameter") -> dict[str, str]:
    return {
        "hyper-parameter": parameter.name,
        "default": _shown(parameter.default),
        "tuned over": ", ".join(map(_shown, parameter.grid)) or "not tuned",
        "help": parameter.help,
    }


def _words(method: "Description") -> str:
    parts = [
        f"{method.name}: {method.adapts}",
        method.details,
        f"needs: {', '.join(method.needs) or 'nothing'}",
        f"paper: {method.paper or 'none'}",
    ]
    return "\n".join(filter(None, parts))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
