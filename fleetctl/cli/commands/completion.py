"""Completion, shell layer: the script that completes commands and names. Names come from this workspace, never from the network."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import pass_app

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FLEETCTL_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@pass_app
def command(app: App, shell: str) -> None:
    """Print the completion script for SHELL.

    Put it where your shell looks:

    \b
    bash  ~/.local/share/bash-completion/completions/fleetctl
    zsh   a file _fleetctl in a folder of $fpath
    fish  ~/.config/fish/completions/fleetctl.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from fleetctl.cli.main import PROGRAM, cli

    found = get_completion_class(shell)
    if found is None:
        raise TypeError(f"click completes no {shell}")
    complete = found(cli, {}, PROGRAM, VARIABLE)
    app.out((ShellComplete.source(complete)).rstrip("\n"))
