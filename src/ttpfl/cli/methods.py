"""`ttpfl methods`: the available test-time methods and their hyper-parameters."""

from typing import Annotated

from ttpfl.cli import completion
from ttpfl.cli.options import Json, argument, flag
from ttpfl.cli.output import print_result, rows_table


def methods(
    name: Annotated[
        str | None, argument("Show the hyper-parameters of this method.", completion.methods)
    ] = None,
    as_markdown: Annotated[bool, flag("--markdown", "Print the table as Markdown.")] = False,
    json: Json = False,
) -> None:
    """List test-time methods, or show one method's hyper-parameters."""
    from ttpfl.methods.table import entries, shown, tables

    listed = entries(None if name is None else [name])
    content = listed if name is None else listed[0]
    if as_markdown:
        print_result(content, *tables(listed), as_json=json)
        return
    if name is None:
        rows = [
            {
                "name": entry.name,
                "what adapts": entry.adapts,
                "needs": entry.needs,
                "paper": entry.paper or "none",
            }
            for entry in listed
        ]
        print_result(content, rows_table(rows), as_json=json)
        return
    method = listed[0]
    rows = [
        {
            "hyper-parameter": parameter.name,
            "default": shown(parameter.default),
            "tuned over": ", ".join(map(shown, parameter.grid)) or "not tuned",
            "help": parameter.help,
        }
        for parameter in method.hyper_parameters
    ]
    words = filter(None, [f"{name}: {method.adapts}", method.details, f"needs: {method.needs}"])
    print_result(content, *words, rows_table(rows) if rows else "no hyper-parameters", as_json=json)
