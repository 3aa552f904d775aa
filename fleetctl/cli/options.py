"""Every step, shell layer: options that several commands share. Never decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleetctl.cli.app import App

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "wide", "json", "yaml", "name")
pass_app = click.make_pass_decorator(App)


class Group(click.Group):
    """A command with subcommands, whose help says the whole first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(limit=300)) for name, c in commands if c is not None])


def _default_output(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    if value is not None:
        return value
    app = ctx.find_object(App)
    return app.settings.output if app is not None else "table"


def output_option(*allowed: str) -> Callable[[F], F]:
    """Add `-o/--output`; the command gets `output: str`. Without `allowed`: table, wide, json, yaml, name."""
    choices = allowed or OUTPUTS
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=None,
        callback=lambda ctx, param, value: _allowed(_default_output(ctx, param, value), choices),
        expose_value=True,
        help=f"Form of the result.  [default: {choices[0]}]",
    )


def _allowed(value: str, choices: tuple[str, ...]) -> str:
    return value if value in choices else choices[0]


def dry_run_option(function: F) -> F:
    """Add `--dry-run`; the command gets `dry_run: bool`."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(function)


def confirm_option(function: F) -> F:
    """Add `--confirm NAME`; the command gets `confirm: str | None` and hands it to `require_confirmation`."""
    return click.option("--confirm", metavar="NAME", default=None, help="The name that would be asked for.")(function)


def can_ask() -> bool:
    """Tell whether a person at a terminal can be asked."""
    import sys

    return sys.stdin.isatty() and sys.stderr.isatty()


def require_confirmation(name: str, confirm: str | None, what: str) -> None:
    """Ask for `name` to be typed before something severe.

    Args:
        what: what happens, such as "lifts the cap of chat-lab".
    Raises:
        UsageError: usage.confirm: no terminal and no --confirm, or another name.
    """
    from fleetctl.errors import UsageError

    if confirm is None and can_ask():
        confirm = click.prompt(f"This {what}. Type {name} to go on", default="", show_default=False, err=True)
    if confirm != name:
        said = "nothing was confirmed" if confirm is None else f"{confirm!r} is not {name!r}"
        raise UsageError("usage.confirm", f"This {what}, and {said}.", hint=f"Add: --confirm {name}")


class CellName(click.types.StringParamType):
    """A cell's name, completed from the way-home files of this workspace (never over the network)."""

    name = "cell"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the cells that are known here."""
        from click.shell_completion import CompletionItem

        folder = os.path.join(os.environ.get("FLEETCTL_WORKSPACE", "."), ".fleetctl", "home")
        try:
            found = sorted(f.removesuffix(".json") for f in os.listdir(folder) if f.endswith(".json"))
        except OSError:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


CELL = CellName()
