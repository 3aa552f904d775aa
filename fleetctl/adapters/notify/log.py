"""Every step, adapters layer: notices as lines of the program's log. Never raises, never sends anything out."""

from __future__ import annotations

import contextlib
import logging

from fleetctl.domain.event import Event

_LEVELS = {"page": logging.ERROR, "warning": logging.WARNING}


class LogNotifier:
    """`Notifier` that logs; a stand-in until people are reached by other means."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("fleetctl.notify")

    def send(self, e: Event) -> None:
        """Log one event: level by its kind (notify.page, notify.warning, else info); what could forge a line is shown as its escape."""
        with contextlib.suppress(Exception):
            level = _LEVELS.get(e.kind.removeprefix("notify."), logging.INFO)
            text = "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in e.text)
            self._log.log(level, "%s %s by %s: %s", e.cell or "fleet", e.kind, e.actor.name, text)
