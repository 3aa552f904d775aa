"""Migrate, shell layer: the loop of a resident ticker. Never decides; a store or fleet file that cannot be read now is tried again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.cli.app import App
from fleetctl.errors import FleetctlError, StoreUnavailable

if TYPE_CHECKING:
    from fleetctl.usecases.migrate import Driver
    from fleetctl.usecases.tick import TickResult
    from fleetctl.wiring import Wiring

IDLE_S = 0.05
AGAIN_S = 0.5
"""How long to wait for a store that is gone or was replaced."""


LOOK_S = 10.0
"""How often it is looked whether anything is left to tick."""
STANDBY_S = 10.0
"""How long one stands by for another that ticks; longer than the lease of one that was killed (6 s)."""


def run_ticker(app: App, *, to_the_end: bool = False) -> None:
    """Judge due cells and renew their weights' leases until SIGTERM or SIGINT.

    Args:
        to_the_end: end by itself once all that is due was ticked, finished cells and orders for them too, and no rollout is under way; or
            where another process ticks: whoever started this starts it again.
    """
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stopping.append(n))
    app.note("ticking")
    resident = Resident(lambda: App(workspace=str(app.workspace)), app.note)
    looked, alone = 0.0, time.monotonic()

    def is_over() -> bool:
        nonlocal looked, alone
        if stopping or not to_the_end:
            return bool(stopping)
        if not resident.is_standby:
            alone = time.monotonic()
        elif time.monotonic() - alone > STANDBY_S:
            app.note("another process ticks")
            return True
        if not resident.is_idle or time.monotonic() - looked < LOOK_S:
            return False
        looked = time.monotonic()
        return not _under_way(App(workspace=str(app.workspace)))

    resident.run(is_over)


def _under_way(app: App) -> bool:
    """Tell whether a rollout has not ended; True too where the store cannot tell."""
    try:
        return any(not row.ended for row in app.wiring.status_rows())
    except FleetctlError:
        return True


class Resident:
    """Ticks whatever is due, and goes on with the new one where the fleet file changes or the store's file is replaced.

    Args:
        make_app: a new App of the workspace; note: told what is worth a line, each text once in a row.
    """

    def __init__(self, make_app: Callable[[], App], note: Callable[[str], None]) -> None:
        self._make_app = make_app
        self._note = note
        self._said: dict[str, str] = {}
        self._driver: Driver | None = None
        self._stamp: tuple[int, int] | None = None
        self._wiring: Wiring | None = None
        self._is_paged = False
        self.is_standby = False
        """Whether another process ticks."""
        self.is_idle = False
        """Whether nothing was due when it was looked last."""

    def run(self, is_over: Callable[[], bool]) -> None:
        """Tick until told to stop, then give the lease back."""
        while not is_over():
            try:
                ticked = self._step()
            except FleetctlError as e:
                self._say("", str(e))
                ticked = 0
                if isinstance(e, StoreUnavailable):
                    self._page(e)
                    self._driver = None
                    time.sleep(AGAIN_S)
            except Exception as e:  # what nobody expected of one cell: its own lease keeps it out for a while, the others go on
                self._say("", f"unexpected {type(e).__name__}: {e}")
                ticked = 0
            self.is_idle = not ticked
            if not ticked:
                time.sleep(IDLE_S)
        if self._driver is not None:
            self._driver.stop()

    def _step(self) -> int:
        driver = self._current()
        self.is_standby = not driver.is_ticking()
        ticked = 0 if self.is_standby else driver.step()
        self._is_paged = False
        return ticked

    def _page(self, e: StoreUnavailable) -> None:
        """Tell people once that nobody judges: weights end with their leases, and nothing in the store says so."""
        from datetime import UTC, datetime

        from fleetctl.domain.event import Event
        from fleetctl.usecases.tick_events import JUDGE

        if self._wiring is None or self._is_paged:
            return
        self._is_paged = True
        text = f"nothing is judged: {e.message} Weights go home as their leases end. To go home now: fleetctl fallback --all"
        self._wiring.notifier.send(Event(at=datetime.now(UTC), kind="notify.page", actor=JUDGE, text=text, data={"cause": e.code}))

    def _current(self) -> Driver:
        app = self._make_app() if self._driver is None else None
        stamp = self._fleet_stamp()
        if self._driver is not None and stamp != self._stamp:
            self._stamp = stamp
            app = self._make_app()
        if app is None and self._driver is not None:
            return self._driver
        return self._renew(app or self._make_app(), stamp)

    def _renew(self, app: App, stamp: tuple[int, int] | None) -> Driver:
        """Make a driver of what stands now; one that works is kept where the fleet file is broken."""
        from fleetctl.usecases.migrate import Driver

        old = self._driver
        try:
            w = app.wiring
            w.take_notifier(self._wiring)
            made = Driver(ports=w.tick_ports(), settings=w.tick_settings(), on_tick=self._ticked)
        except FleetctlError as e:
            if old is None or isinstance(e, StoreUnavailable):
                raise
            self._say("fleet", str(e))
            return old
        if old is not None:
            made.lease = old.lease
        self._driver, self._stamp, self._wiring = made, stamp, w
        return made

    def _fleet_stamp(self) -> tuple[int, int] | None:
        from fleetctl.formats.settings import find_fleet_file

        try:
            found = find_fleet_file(self._make_app().settings).stat()
        except (FleetctlError, OSError):
            return None
        return found.st_mtime_ns, found.st_size

    def _ticked(self, t: TickResult) -> None:
        if t.kind == "ticked":
            self._said.pop(t.cell, None)
        else:
            self._say(t.cell, f"{t.cell} {t.kind}: {t.why}")

    def _say(self, about: str, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            self._note(text)
