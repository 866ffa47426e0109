"""The program `ttpfl`. Each command has a file and a line in `CONTENTS`.

Commands import what they need when they run, so that `ttpfl --help` does not wait for torch.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from ttpfl._version import __version__
from ttpfl.cli import bound, compare, data, experiment, federation, flower, methods, personalize, results
from ttpfl.cli.errors import DEBUG, EXIT_CODES
from ttpfl.cli.group import Commands
from ttpfl.cli.help_pages import PagedCommand, paragraphs
from ttpfl.cli.messages import show_warnings
from ttpfl.cli.options import flag
from ttpfl.federation.settings import RENAMED

# Panels of the help page and their commands, in the order of use.
CONTENTS: dict[str, dict[str, typer.Typer | Callable[..., None]]] = {
    "Start": {"demo": experiment.demo, "data": data.app},
    "Learn on source clients": {
        "train": federation.train,
        "learn": federation.learn,
        "flower": flower.app,
    },
    "Compare": {
        "compare": compare.compare,
        "run": experiment.run,
        "recipe": experiment.recipe_app,
        "results": results.app,
        "report": experiment.report,
    },
    "Use at new sites": {"personalize": personalize.personalize},
    "Look up": {"bound": bound.bound, "methods": methods.methods},
}


class _Commands(Commands):
    order = tuple(name for commands in CONTENTS.values() for name in commands)


app = typer.Typer(
    cls=_Commands,
    help="Test-time personalised federated learning: learn what to adapt, and how far.",
    epilog=f"{EXIT_CODES}\n\nErrors are one line on stderr; {DEBUG} shows their traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    show_warnings()
    app(prog_name="ttpfl")


def _current_name(option: str) -> str:
    """The name of an option, including names of earlier versions.

    >>> _current_name("epochs"), _current_name("rounds")
    ('local-epochs', 'rounds')
    """
    return RENAMED[option].replace("_", "-") if option in RENAMED else option


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ttpfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, flag("--version", "Show the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, flag(DEBUG, "Show the traceback of errors.", envvar="TTPFL_DEBUG")] = False,
) -> None:
    pass


for _panel, _commands in CONTENTS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            for _inner in _command.registered_commands:
                _inner.cls = PagedCommand
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(
                _name,
                cls=PagedCommand,
                help=paragraphs(_command.__doc__),
                rich_help_panel=_panel,
                context_settings={"token_normalize_func": _current_name},
            )(_command)
