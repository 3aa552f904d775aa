"""Provision, configure and migrate, views layer: live progress of long work. Never touches the work itself.

On a terminal it moves; elsewhere each change is one plain line. Never reads a clock of its own: seconds come with each Progress, or from
the `now` it is given. rich is imported only when it moves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from fleetctl.domain.provision import Progress
from fleetctl.views.output import cell_width, clean, shorten

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

SIGNS = {"started": ">", "running": ">", "ok": "=", "changed": "+", "skipped": "-", "failed": "x", "unreachable": "?"}
STYLES = {
    "started": "cyan",
    "running": "cyan",
    "ok": "green",
    "changed": "yellow",
    "skipped": "dim",
    "failed": "bold red",
    "unreachable": "magenta",
}
DONE = frozenset({"ok", "changed", "skipped", "failed", "unreachable"})
_TELLING = frozenset({"failed", "unreachable", "changed"})
_HEARTBEAT_S = 10.0
_MODULES = re.compile(r"\A(module\.[\w-]+(\[[^\]]*\])?\.)+")


def without_modules(address: str) -> str:
    """Return a resource's own name, without the way into Terraform's modules."""
    return _MODULES.sub("", address)


def progress_line(p: Progress, *, width: int | None = None) -> str:
    """Return one progress as a line: sign, subject, step, state, seconds, text."""
    took = f" {p.seconds:.1f}s" if p.seconds >= 0.05 else ""
    text = f": {clean(p.text)}" if p.text else ""
    line = f"{SIGNS[p.state]} {without_modules(clean(p.subject))}  {clean(p.step)}  {p.state}{took}{text}"
    return shorten(line, width) if width else line


class ProgressView:
    """Shows progress while work runs; use it as a context manager and hand it to the port as the `on` callback.

    Args:
        live: move on a terminal (`App.live`); title: what runs, such as "provision".
        stream: where plain lines go (stderr by default); now: seconds, for the 10 s heartbeat off a terminal.
        many: steps are many small tasks of roles ("role : task"): plain lines name each role once, then only what changed, failed or
            took 10 s.
    """

    def __init__(
        self, *, live: bool, title: str, stream: TextIO | None = None, now: Callable[[], float] | None = None, many: bool = False
    ) -> None:
        self._is_live = live
        self._many = many
        self._roles: dict[str, str] = {}
        self._title = title
        self._stream = stream if stream is not None else sys.stderr
        self._now = now
        self._current: dict[str, Progress] = {}
        self._counts: dict[str, int] = {}
        self._last_line = now() if now else 0.0
        self._live: Live | None = None

    def __enter__(self) -> ProgressView:
        """Start showing."""
        if self._is_live:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False, force_terminal=True)
            self._live = Live(console=console, refresh_per_second=8, transient=True, get_renderable=self._picture)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop showing; what went wrong stays on screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._counts:
            self._write(f"{self._title}: {self.summary()}")

    def __call__(self, p: Progress) -> None:
        """Take one progress."""
        if p.state in DONE:
            self._counts[p.state] = self._counts.get(p.state, 0) + 1
            self._current.pop(p.subject, None)
        else:
            self._current[p.subject] = p
        if self._live is not None:
            if p.state in _TELLING:
                self._live.console.print(self._styled(p))
            self._live.refresh()
        elif p.state == "running":
            self._beat(p)
        elif self._many:
            self._one_of_many(p)
        else:
            self._write(progress_line(p))

    def say(self, text: str) -> None:
        """Write one line that stays."""
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(clean(text)))
        else:
            self._write(clean(text))

    def summary(self) -> str:
        """Return the counts so far, such as "8 ok, 2 changed"."""
        return ", ".join(f"{self._counts[s]} {s}" for s in SIGNS if s in self._counts) or "nothing yet"

    def _one_of_many(self, p: Progress) -> None:
        role, _, task = p.step.partition(" : ")
        if task and self._roles.get(p.subject) != role:
            self._roles[p.subject] = role
            self._write(f"{SIGNS['started']} {clean(p.subject)}  {clean(role)}")
        if p.state in _TELLING or p.seconds >= _HEARTBEAT_S:
            self._write(progress_line(p))

    def _beat(self, p: Progress) -> None:
        if self._now is None:
            return
        if self._now() - self._last_line >= _HEARTBEAT_S:
            self._write(progress_line(p))

    def _write(self, line: str) -> None:
        if self._now is not None:
            self._last_line = self._now()
        self._stream.write(line + "\n")
        self._stream.flush()

    def _styled(self, p: Progress) -> Text:
        from rich.text import Text

        width = self._live.console.width if self._live is not None and p.state == "changed" else None
        return Text(progress_line(p, width=width), style=STYLES[p.state])  # what went wrong is shown whole

    def _picture(self) -> Group:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        head = Spinner("dots", text=Text(f"{self._title}: {self.summary()}"))
        width = self._live.console.width if self._live is not None else 80
        lines = [Text(progress_line(p, width=width), style=STYLES[p.state]) for p in list(self._current.values())[-8:]]
        return Group(head, *lines)


def bar(share: float, width: int = 20) -> str:
    """Return a share (0 to 1) as a bar of `width` characters that also reads without colour."""
    full = round(min(max(share, 0.0), 1.0) * width)
    text = "#" * full + "." * (width - full)
    return text if cell_width(text) == width else text[:width]
