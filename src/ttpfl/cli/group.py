"""The group of all commands: their order, `--debug` anywhere, and errors as messages."""

from typing import Any, ClassVar

from typer.core import TyperGroup

from ttpfl.cli.errors import DEBUG, reporting_errors, reporting_usage_errors
from ttpfl.cli.messages import speaking_for


class Commands(TyperGroup):
    """Commands in a fixed order, whose errors become messages and exit codes."""

    order: ClassVar[tuple[str, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in `order`; typer would put groups last."""
        places = {name: place for place, name in enumerate(self.order)}
        return sorted(super().list_commands(ctx), key=lambda name: places.get(name, len(places)))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the command's name."""
        with reporting_usage_errors():
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept `--debug` anywhere, since users append it to their command."""
        end = args.index("--") if "--" in args else len(args)
        if DEBUG in args[:end]:
            args = [DEBUG, *(word for word in args[:end] if word != DEBUG), *args[end:]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with speaking_for(lambda: ctx.invoked_subcommand), reporting_errors(ctx.params["debug"]):
            return super().invoke(ctx)
