"""Composition root, who is told. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl.wiring.base import Base

if TYPE_CHECKING:
    from fleetctl.ports.state import Notifier


class People(Base):
    """Notifiers of one workspace."""

    @cached_property
    def notifier(self) -> Notifier:
        """Return what tells people: the log, and the channels that the fleet file names; what waits is sent at the end of the process."""
        return self._notifier("notify")

    def guard_notifier(self) -> Notifier:
        """Return what tells people for a guard: it has to speak where the fleet file cannot be read, and where a ticker hangs.

        Its notices wait in a folder of its own: whoever sends holds that folder's lock, and a process that hangs does so for ever.
        """
        from fleetctl.adapters.notify.log import LogNotifier
        from fleetctl.errors import FleetctlError

        try:
            return self._notifier("notify-guard")
        except FleetctlError:
            return LogNotifier()

    def take_notifier(self, old: People | None) -> None:
        """Go on with an earlier wiring's notifier where its channels are the same; else its threads and locks are given up.

        Raises:
            ConfigInvalid: the fleet file cannot be read; the earlier one is kept.
        """
        made = None if old is None else old.__dict__.get("notifier")
        if old is None or made is None or "notifier" in self.__dict__:
            return
        if (old.fleet.notify, old.fleet.name, old.state_folder) == (self.fleet.notify, self.fleet.name, self.state_folder):
            self.__dict__["notifier"] = made
            return
        import atexit
        from threading import Thread

        close = getattr(made, "close", lambda: None)
        atexit.unregister(close)
        Thread(target=close, name="notify-close", daemon=True).start()  # what it is about to send may take its time

    def _notifier(self, folder: str) -> Notifier:
        import atexit

        from fleetctl.adapters.notify.channels import Channel
        from fleetctl.adapters.notify.log import LogNotifier
        from fleetctl.adapters.notify.spool import SpooledNotifier
        from fleetctl.adapters.secrets.files import FileSecrets
        from fleetctl.adapters.store.sqlite import SqliteStore
        from fleetctl.domain.event import Event

        if not self.fleet.notify:
            return LogNotifier()
        secrets, store = FileSecrets(self.workspace), self._store

        def record(e: Event) -> None:
            SqliteStore(store, create=False).append((e,))  # a connection of the thread's own

        channels = [Channel(c, self.fleet.name, secrets.resolve) for c in self.fleet.notify]
        made = SpooledNotifier(channels, self.state_folder / folder, LogNotifier(), self.clock, record)
        made.start()
        atexit.register(made.close)
        return made
