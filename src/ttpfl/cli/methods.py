"""`ttpfl methods`: which test-time methods there are, and what can be chosen about them."""

from typing import TYPE_CHECKING, Annotated

import typer

from ttpfl.cli import completion
from ttpfl.cli.options import Json
from ttpfl.cli.output import answer, rows_table

if TYPE_CHECKING:
    from ttpfl.methods.table import Entry


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the hyper-parameters of this method.",
            show_default=False,
            autocompletion=completion.methods,
        ),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    json: Json = False,
) -> None:
    """List test-time methods, or show one method's hyper-parameters."""
    from ttpfl.methods.table import entries, tables

    found = entries(None if name is None else [name])
    facts = found if name is None else found[0]
    if as_markdown:
        answer(facts, *tables(found), as_json=json)
    elif name is None:
        answer(facts, rows_table([_row(each) for each in found]), as_json=json)
    else:
        parameters = _parameters(found[0])
        table = rows_table(parameters) if parameters else "no hyper-parameters"
        answer(facts, _words(found[0]), table, as_json=json)


def _row(method: "Entry") -> dict[str, str]:
    return {
        "name": method.name,
        "what adapts": method.adapts,
        "needs": method.needs,
        "paper": method.paper or "none",
    }


def _parameters(method: "Entry") -> list[dict[str, str]]:
    from ttpfl.methods.table import shown

    return [
        {
            "hyper-parameter": one.name,
            "default": shown(one.default),
            "tuned over": ", ".join(map(shown, one.grid)) or "not tuned",
            "help": one.help,
        }
        for one in method.hyper_parameters
    ]


def _words(method: "Entry") -> str:
    parts = [f"{method.name}: {method.adapts}", method.details, f"needs: {method.needs}"]
    return "\n".join(filter(None, parts))
