"""Version, shell layer: what is installed. Never asks the network."""

from __future__ import annotations

import platform

import click

from fleetctl import __version__
from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app


@click.command("version")
@output_option("table", "json", "yaml")
@pass_app
def command(app: App, output: str) -> None:
    """Print the version."""
    if output == "table":
        app.out(f"fleetctl {__version__}")
        return
    from fleetctl.views.output import Table, render

    value = {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
    app.out(render(output, kind="version", value=value, table=Table(columns=(), rows=())))
