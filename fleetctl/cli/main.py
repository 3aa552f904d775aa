"""Every step, shell layer: the program: options of all commands, lazy commands, errors and exit codes in one place. Never decides.

`fleetctl --help` imports click alone; a command's module is imported when that command is called.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fleetctl import __version__
from fleetctl.cli.app import App, for_terminal
from fleetctl.cli.registry import COMMANDS, GROUPS, IN_TROUBLE, in_group
from fleetctl.cli.streams import guarded
from fleetctl.errors import EXIT_DONE, EXIT_INTERRUPTED, FleetctlError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "fleetctl"
_NAME_WIDTH = max(map(len, COMMANDS))


class LazyGroup(click.Group):
    """The top group: help from the static table, commands imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command.

        Raises:
            UsageError: usage.not_built: it is in the table and its module is not installed.
        """
        from importlib import import_module
        from importlib.util import find_spec

        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = entry.module(cmd_name)
        if find_spec(module) is None:
            raise UsageError("usage.not_built", f"the command {cmd_name} is not part of this installation.", hint=f"Run: {PROGRAM} doctor")
        command = import_module(module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.command is a {type(command).__name__}, not a click command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line, with a suggestion where there is none."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            hint = f"Did you mean: {PROGRAM} {near[0]}" if near else f"Run: {PROGRAM} --help"
            raise UsageError("usage.no_command", f"there is no command {name!r}.", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups."""
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl([(name.ljust(_NAME_WIDTH), COMMANDS[name].help) for name in in_group(group)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the last line."""
        formatter.write_paragraph()
        formatter.write(f"{IN_TROUBLE}\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing any."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(n, help=e.help) for n, e in COMMANDS.items() if n.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option("-C", "--workspace", metavar="DIR", default="", help="Work in DIR instead of here (FLEETCTL_WORKSPACE).")
@click.option("--debug", is_flag=True, help="Show a traceback where something unexpected happens.")
@click.option("--no-color", is_flag=True, help="No colour and no motion (NO_COLOR).")
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def cli(ctx: click.Context, workspace: str, debug: bool, no_color: bool, version: bool) -> None:
    """Move GPU inference fleets from NVIDIA to AMD, one workload at a time, and bring them back in seconds."""
    ctx.obj = App(workspace=workspace, debug=debug, no_color=no_color)
    if version:
        click.echo(f"{PROGRAM} {__version__}")
        ctx.exit(EXIT_DONE)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(EXIT_DONE)


def main(argv: list[str] | None = None) -> int:
    """Run the program and return its exit code.

    Args:
        argv: arguments without the program's name; None: those of the process.
    """
    with guarded():
        return _main(argv)


def _main(argv: list[str] | None) -> int:
    args = sys.argv[1:] if argv is None else argv
    debug = "--debug" in args
    try:
        done = cli.main(args=list(args), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return done if isinstance(done, int) else EXIT_DONE
    except FleetctlError as e:
        return _say(e, debug)
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.exceptions.NoArgsIsHelpError as e:
        return _say(_no_subcommand(e), debug)
    except click.UsageError as e:
        path = e.ctx.command_path if e.ctx is not None else PROGRAM
        return _say(UsageError("usage.bad", _sentence(e.format_message()), hint=f"Run: {path} --help"), debug)
    except click.FileError as e:
        return _say(FleetctlError("internal.file", _sentence(e.format_message()), hint=f"Run: {PROGRAM} doctor"), debug)
    except (KeyboardInterrupt, click.Abort, EOFError):
        click.echo("error[interrupted]: stopped by a person. Run the same command again to go on.", err=True)
        return EXIT_INTERRUPTED
    except Exception as e:
        if debug:
            _trace(e)
        what = f"unexpected {type(e).__name__}: {_one_line(str(e))}"
        return _say(FleetctlError("internal", _sentence(what), hint="Run the same command with: fleetctl --debug ..."))


def _no_subcommand(error: click.exceptions.NoArgsIsHelpError) -> UsageError:
    ctx = error.ctx
    path = ctx.command_path
    names = ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []
    what = f"a subcommand: {', '.join(names)}" if names else "an argument"
    return UsageError("usage.no_subcommand", f"{path} needs {what}.", hint=f"Run: {path} --help")


def _trace(error: BaseException) -> None:
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


def _say(error: FleetctlError, debug: bool = False) -> int:
    if debug and not isinstance(error, UsageError):
        _trace(error)
    for line in (str(error), *(f"  {detail}" for detail in error.details)):
        click.echo(for_terminal(line), err=True)
    return error.exit_code


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 300 else flat[:297] + "..."


if __name__ == "__main__":
    sys.exit(main())
