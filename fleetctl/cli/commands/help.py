"""Help, shell layer: a command's own help, or a topic. Never changes anything."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import pass_app
from fleetctl.cli.registry import COMMANDS
from fleetctl.cli.topics import TOPICS
from fleetctl.errors import UsageError


@click.command("help")
@click.argument("topic", required=False)
@click.pass_context
@pass_app
def command(app: App, ctx: click.Context, topic: str | None) -> None:
    """Explain a command or a TOPIC: exit-codes, output, settings."""
    parent = ctx.find_root()
    if topic is None:
        app.out(parent.get_help())
    elif topic in TOPICS:
        app.out(TOPICS[topic]())
    elif topic in COMMANDS and isinstance(parent.command, click.Group):
        found = parent.command.get_command(parent, topic)
        if found is not None:
            with click.Context(found, info_name=topic, parent=parent) as inner:
                app.out(found.get_help(inner))
    else:
        raise UsageError("usage.no_topic", f"there is no command or topic {topic!r}.", hint=f"Topics: {', '.join(TOPICS)}")
