"""Every step, shell layer: what every command gets: settings, and where its words go. Never decides."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.domain.fleet import Fleet
    from fleetctl.formats.settings import Settings
    from fleetctl.views.output import Table
    from fleetctl.wiring import Wiring


def for_terminal(text: str) -> str:
    """Return a message whose long lines are broken between words on a terminal; elsewhere it stays one line for grep."""
    if not sys.stderr.isatty():
        return text
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns)
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())] + "  "
        wraps = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
        lines += textwrap.wrap(line, width, **wraps) if len(line) > width else [line]  # type: ignore[arg-type]
    return "\n".join(lines)


class App:
    """One run of the program; `@click.pass_obj` hands it to a command.

    Args:
        workspace: directory given by --workspace, "" for FLEETCTL_WORKSPACE or the current one.
        debug: tracebacks are shown.
        no_color: --no-color was given.
    """

    def __init__(self, *, workspace: str = "", debug: bool = False, no_color: bool = False) -> None:
        self._workspace = workspace
        self.debug = debug
        self._no_color = no_color

    @cached_property
    def settings(self) -> Settings:
        """Return the settings in force. Raises ConfigInvalid (config.settings)."""
        from fleetctl.formats.settings import load_settings

        flags = {"workspace": self._workspace or None, "color": "never" if self._no_color else None}
        return load_settings(flags, os.environ)

    @property
    def workspace(self) -> Path:
        """Return the workspace directory."""
        return self.settings.workspace

    def fleet(self, serial: int = 1) -> Fleet:
        """Read the fleet file. Raises ConfigInvalid (config.*)."""
        from fleetctl.formats.fleet_file import read_fleet
        from fleetctl.formats.settings import find_fleet_file

        path = find_fleet_file(self.settings)
        return read_fleet(path, serial=serial, shown_as=self.shown(path))

    @cached_property
    def wiring(self) -> Wiring:
        """Return the adapters of this workspace; each is made when it is asked for."""
        from fleetctl.formats.settings import find_fleet_file
        from fleetctl.wiring import Wiring

        return Wiring(
            self.workspace,
            lambda: find_fleet_file(self.settings),
            store=self.settings.store,
            actor=self.settings.actor,
            price_book=self.settings.price_book,
            signing_key=self.settings.signing_key,
        )

    def shown(self, path: Path) -> str:
        """Return a path the way people know it: relative to the workspace where it lies there."""
        return str(path.relative_to(self.workspace)) if path.is_relative_to(self.workspace) else str(path)

    @cached_property
    def color(self) -> bool:
        """Tell whether stdout may carry colour."""
        return self._may("stdout")

    @cached_property
    def live(self) -> bool:
        """Tell whether stderr may carry colour and motion: a terminal, and nobody said no."""
        return self._may("stderr")

    def _may(self, stream: str) -> bool:
        if self.settings.color == "never" or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return self.settings.color == "always" or bool(getattr(sys, stream).isatty())

    @property
    def width(self) -> int:
        """Return the columns of a table: at least 80, the terminal's where stdout is one."""
        if not sys.stdout.isatty():
            return 80
        import shutil

        return max(80, shutil.get_terminal_size().columns)

    def out(self, text: str) -> None:
        """Write a result to stdout."""
        click.echo(text, color=True if self.color else None)

    def note(self, text: str) -> None:
        """Write a message to stderr."""
        click.echo(for_terminal(text), err=True, color=True if self.live else None)

    def line(self, kind: str, value: object) -> None:
        """Write one JSON object on one line of stdout, for commands that stream."""
        import json

        from fleetctl.formats.output import envelope

        click.echo(json.dumps(envelope(kind, value), default=str))

    def show(self, output: str, kind: str, value: object, table: Table, names: tuple[str, ...] = ()) -> None:
        """Write a result in the form that -o asks for.

        Args:
            kind: what the JSON calls it, such as "inventory"; value: domain values, or plain data; names: lines of `-o name`.
        """
        from fleetctl.views.output import render

        self.out(render(output, kind=kind, value=value, table=table, names=names, width=self.width))
