"""Coming home, use-case layer: rehearsals of going home as records that the audit log tells of. Never rehearses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event, broken_link
from fleetctl.domain.ids import CellId
from fleetctl.domain.provision import Drill
from fleetctl.ports.state import Records, Store

KIND = "drill.done"
"""Kind of the event that tells of a rehearsal, by the hash of its record."""


def keep(drill: Drill, records: Records, store: Store) -> None:
    """Keep a rehearsal of a cell as its newest, and tell the audit log of it by its hash."""
    if drill.cell is None:
        raise ValueError("a rehearsal without a cell proves nothing")
    text = f"home in {drill.ms_to_zero:.0f} ms" if drill.ok else f"failed: {drill.detail}"
    data: dict[str, str | int | float | bool | None] = {
        "digest": digest(drill),
        "is_ok": drill.ok,
        "ms_to_zero": round(drill.ms_to_zero, 1),
    }
    store.append((Event(at=drill.at, kind=KIND, actor=drill.actor, text=text, cell=drill.cell, data=data),))
    records.put(drill.cell, drill)


def newest(records: Records, store: Store) -> Mapping[CellId, Drill]:
    """Return the newest rehearsal of each cell; one that the audit log does not tell of, or whose chain is broken, counts as failed."""
    found = {d.cell: d for d in records.all(Drill) if d.cell is not None}
    out = {}
    for cell, drill in found.items():
        chain = tuple(store.events(cell, 0))
        told = {e.data.get("digest") for e in chain if e.kind == KIND}
        why = "" if digest(drill) in told else "the audit log tells of no such one"
        why = "the audit log of its cell does not hold" if broken_link(chain) is not None else why
        out[cell] = replace(drill, ok=False, detail=f"{why}. Run: fleetctl audit verify") if why else drill
    return out
