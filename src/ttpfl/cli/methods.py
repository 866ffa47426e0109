"""`ttpfl methods`: the available test-time methods and their hyper-parameters."""

from typing import Annotated

import typer

from ttpfl.cli import completion
from ttpfl.cli.options import Json
from ttpfl.cli.output import answer, rows_table


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
    from ttpfl.methods.table import entries, shown, tables

    listed = entries(None if name is None else [name])
    facts = listed if name is None else listed[0]
    if as_markdown:
        answer(facts, *tables(listed), as_json=json)
        return
    if name is None:
        rows = [
            {"name": one.name, "what adapts": one.adapts, "needs": one.needs, "paper": one.paper or "none"}
            for one in listed
        ]
        answer(facts, rows_table(rows), as_json=json)
        return
    method = listed[0]
    rows = [
        {
            "hyper-parameter": one.name,
            "default": shown(one.default),
            "tuned over": ", ".join(map(shown, one.grid)) or "not tuned",
            "help": one.help,
        }
        for one in method.hyper_parameters
    ]
    words = filter(None, [f"{name}: {method.adapts}", method.details, f"needs: {method.needs}"])
    answer(facts, *words, rows_table(rows) if rows else "no hyper-parameters", as_json=json)
