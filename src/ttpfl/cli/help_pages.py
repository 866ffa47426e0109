"""Help pages that fit a screen: `--help` shows the usual options, `--help-more` the others."""

import inspect
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

ALGORITHM, AGGREGATION, PRIVACY = "Algorithm", "Aggregation", "Privacy"
CHECKS, SITES = "Validation and checkpoints", "Real sites"
MORE = (ALGORITHM, AGGREGATION, PRIVACY, CHECKS, SITES)
"""Panels of the second page."""


class PagedCommand(TyperCommand):
    """A command whose options may fill two help pages."""

    second_page = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show one of the pages. Options of both are always accepted and completed."""
        before = self.params, self.help, self.add_help_option
        self.params = [self._as_shown(parameter) for parameter in self.params]
        if self.second_page:
            self.help, self.add_help_option = None, False
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.help, self.add_help_option = before

    def _as_shown(self, parameter: Any) -> Any:
        parameter = copy(parameter)
        if (parameter.rich_help_panel in MORE) != self.second_page:
            parameter.hidden = True
        if text := _default(parameter):  # typer would put it on a separate line
            parameter.help = f"{parameter.help} [dim]{escape(f'[default: {text}]')}[/dim]"
            parameter.show_default = False
        return parameter


def _default(parameter: Any) -> str:
    value, shown = parameter.default, parameter.show_default
    if isinstance(shown, str):
        return shown
    if not shown or not isinstance(value, (bool, int, float, str, Path)):
        return ""
    if isinstance(value, bool):
        names: list[str] = parameter.opts if value else parameter.secondary_opts
        return names[0].lstrip("-") if names else ""
    return str(value)


def _show_more(context: typer.Context, asked: bool) -> None:
    if asked and isinstance(context.command, PagedCommand):
        context.command.second_page = True
        typer.echo(context.get_help())
        raise typer.Exit


_HELP_MORE = "Show all other options, such as those for real sites, and exit."
HelpMore = Annotated[bool, typer.Option("--help-more", callback=_show_more, is_eager=True, help=_HELP_MORE)]


def paragraphs(docstring: str | None) -> str:
    r"""A docstring without the line breaks inside its paragraphs, which typer would keep.

    >>> paragraphs("Train.\n\n    It takes\n    long.")
    'Train.\n\nIt takes long.'
    """
    parts = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)
