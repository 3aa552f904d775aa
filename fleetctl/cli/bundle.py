"""`fleetctl doctor --bundle`, shell layer: what goes into an evidence bundle, and where it is read. Never decides."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl import __version__

if TYPE_CHECKING:
    from fleetctl.cli.app import App
    from fleetctl.domain.fleet import Fleet
    from fleetctl.usecases.bundle import Bundle, Part
    from fleetctl.usecases.doctor import Diagnosis
    from fleetctl.views.redact import Redactor

LOOKS = 2_000
"""Newest looks of each cell."""


def bundle(app: App, diagnosis: Diagnosis, fleet: Fleet | None, file: Path) -> tuple[Bundle, int]:
    """Write the bundle and return what is in it, and its bytes. Raises UsageError (usage.bundle), FleetctlError (bundle.secret)."""
    from datetime import UTC, datetime

    from fleetctl.adapters.bundle import write_archive
    from fleetctl.usecases.bundle import gather

    now = datetime.now(UTC)
    fleets = [f for f in (fleet, _kept(app)) if f is not None]
    made = gather(_parts(app, diagnosis, with_store=bool(fleets)), _redactor(app, fleets))
    return made, write_archive(file, made.files, f"fleetctl-evidence-{now:%Y%m%dT%H%M%SZ}", now.timestamp())


def _redactor(app: App, fleets: Sequence[Fleet]) -> Redactor:
    from fleetctl.adapters.bundle import read_secrets
    from fleetctl.views.redact import Redactor, secret_variables

    refs = [ref for f in fleets for c in (*f.routers, *f.sources, *f.evidence, *f.notify) for ref in c.secrets.values()]
    files = [Path(ref.name) for ref in refs if ref.kind == "file"]
    variables = secret_variables(os.environ, (ref.name for ref in refs if ref.kind == "env"))
    return Redactor(read_secrets([app.settings.state / "key", *files]) | variables)


def _ways_home(app: App) -> Iterator[object]:
    """Yield each way home, or why it is refused; looking for them makes no key where there is none."""
    from fleetctl.usecases.home_choice import readable

    if not (app.settings.state / "key").exists():
        return
    good, refused = readable(app.wiring.ways_home)
    yield from good
    yield from ({"cell": f.cell, "refused": f"{f.error.code}: {f.error.message}"} for f in refused)


def _kept(app: App) -> Fleet | None:
    """Return the fleet as it was last recorded: its file may be wrong just now; None where the store cannot tell."""
    from fleetctl.domain.fleet import Fleet
    from fleetctl.errors import FleetctlError

    if not app.settings.store.exists():
        return None
    try:
        return app.wiring.store.newest(Fleet)
    except FleetctlError:
        return None


def _parts(app: App, diagnosis: Diagnosis, *, with_store: bool) -> dict[str, Part]:
    from fleetctl.domain.fleet import Fleet as FleetValue
    from fleetctl.domain.plan import Approval, Plan
    from fleetctl.domain.provision import Drill

    def newest(kind: type[object]) -> Iterator[object]:
        found = app.wiring.store.newest(kind)
        return iter(() if found is None else (found,))

    def of_cells(read: str) -> Iterator[object]:
        store = app.wiring.store
        for c in store.cells():
            rows = (store.load(c),) if read == "rollouts" else tuple(store.rows(c, None))[-LOOKS:]
            yield from (r for r in rows if r is not None)

    def events() -> Iterator[object]:
        store = app.wiring.store
        for c in (None, *store.cells()):
            yield from store.events(c, 0)

    settings = {s: str(getattr(app.settings, s)) for s in ("workspace", "fleet", "store", "output", "price_book", "actor", "signing_key")}
    about = {"fleetctl": __version__, "python": platform.python_version(), "platform": platform.platform()}
    here: dict[str, Part] = {
        "versions.jsonl": lambda: (about,),
        "doctor.jsonl": lambda: diagnosis.needs,
        "settings.jsonl": lambda: (settings, dict(app.settings.origin)),
        "ways_home.jsonl": lambda: _ways_home(app),
        "rehearsals.jsonl": lambda: app.wiring.rehearsals.all(),
        "runbook_runs.jsonl": lambda: app.wiring.runbook_runs(),
    }
    if not app.settings.store.exists() or not with_store:  # reading it would begin one; without a fleet nobody knows which files are secret
        return here
    return here | {
        "fleet.jsonl": lambda: newest(FleetValue),
        "plan.jsonl": lambda: newest(Plan),
        "approvals.jsonl": lambda: app.wiring.store.all(Approval),
        "drills.jsonl": lambda: app.wiring.store.all(Drill),
        "audit.jsonl": lambda: ({"chain": str(c or "fleet"), "seq": seq, "fault": what} for c, seq, what in app.wiring.store.verify()),
        "events.jsonl": events,
        "rollouts.jsonl": lambda: of_cells("rollouts"),
        "looks.jsonl": lambda: of_cells("looks"),
    }
