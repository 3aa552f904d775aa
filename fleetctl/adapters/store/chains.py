"""Audit, adapters layer: hash-chained events in the store's file: append, read, verify, anchor. Never changes one that is there.

What is found: an edited, removed or reordered event of any chain; a chain cut off at its end or written anew since the last
anchor. What is not: the whole file put back to an older state, or the fleet's own chain written anew with everything else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from fleetctl.adapters.store.database import Database
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.event import GENESIS, Event, broken_link, chained
from fleetctl.domain.ids import CellId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant
from fleetctl.errors import RowUnreadable

ANCHOR_KIND = "audit.anchor"
PAGE = 500
FLEET = ""
"""Name of the fleet's own chain in the file."""

Fault = tuple[CellId | None, int, str]


def append_events(q: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Link events to the ends of their chains, inside the caller's transaction."""
    for event in events:
        chain = event.cell or FLEET
        head = q.execute("SELECT seq, hash FROM head WHERE chain = ?", (chain,)).fetchone()
        link = chained(event, head[0] + 1, head[1]) if head else chained(event, 1, GENESIS)
        q.execute(
            "INSERT INTO event (chain, seq, prev, hash, body) VALUES (?, ?, ?, ?, ?)",
            (chain, link.seq, link.prev, link.hash, canonical(link).decode()),
        )


def read_events(db: Database, c: CellId | None, since: int) -> Iterator[Event]:
    """Yield a chain's events with seq > since, page by page, holding no transaction between pages."""
    query = "SELECT seq, body FROM event WHERE chain = ? AND seq > ? ORDER BY seq LIMIT ?"
    while True:
        with db.read() as q:
            page = q.execute(query, (c or FLEET, since, PAGE)).fetchall()
        for seq, body in page:
            try:
                yield decode(Event, body)
            except (ValueError, TypeError) as e:
                text = f"event {seq} of {c or 'the fleet'} in {db.path} cannot be read: {e}."
                raise RowUnreadable("store.unreachable", text, hint="Run: fleetctl audit verify") from e
        if len(page) < PAGE:
            return
        since = page[-1][0]


def append_anchor(db: Database, at: Instant, actor: Actor) -> Event | None:
    """Write the heads that moved since the last anchor into the fleet's chain; None where none did."""
    with db.write() as q:
        moved = q.execute("SELECT chain, seq, hash FROM head WHERE chain <> ? AND seq > anchored_seq ORDER BY chain", (FLEET,)).fetchall()
        if not moved:
            return None
        event = Event(
            at=at,
            kind=ANCHOR_KIND,
            actor=actor,
            text=f"{len(moved)} chain head(s) anchored",
            data={chain: f"{seq}:{hash_}" for chain, seq, hash_ in moved},
        )
        append_events(q, (event,))
        q.executemany("UPDATE head SET anchored_seq = ? WHERE chain = ?", [(seq, chain) for chain, seq, _ in moved])
        body = q.execute("SELECT body FROM event WHERE chain = ? ORDER BY seq DESC LIMIT 1", (FLEET,)).fetchone()[0]
        return decode(Event, body)


def find_faults(db: Database) -> list[Fault]:
    """Check every chain, its head and every anchor; [] where all hold."""
    faults: list[Fault] = []
    with db.read() as q:
        chains = [r[0] for r in q.execute("SELECT chain FROM event UNION SELECT chain FROM head ORDER BY 1")]
        for chain in chains:
            fault = _check_chain(q, chain)
            if fault is not None:
                faults.append((CellId(chain) if chain else None, *fault))
        faults += _check_anchors(q)
    return faults


def _check_chain(q: sqlite3.Connection, chain: str) -> tuple[int, str] | None:
    last: tuple[int, str] = (0, GENESIS)
    unreadable: tuple[int, str] | None = None

    def links() -> Iterator[Event]:
        nonlocal last, unreadable
        for seq, prev, hash_, body in q.execute("SELECT seq, prev, hash, body FROM event WHERE chain = ? ORDER BY seq", (chain,)):
            try:
                event = decode(Event, body)
            except (ValueError, TypeError) as e:
                unreadable = (seq, f"cannot be read ({str(e)[:100]})")
                return
            if (event.seq, event.prev, event.hash, event.cell or FLEET) != (seq, prev, hash_, chain):
                unreadable = (seq, "was edited")
                return
            last = (seq, hash_)
            yield event

    broken = broken_link(links())
    if broken is not None or unreadable is not None:
        return broken or unreadable
    head = q.execute("SELECT seq, hash FROM head WHERE chain = ?", (chain,)).fetchone()
    if head is None or tuple(head) != last:
        seq = head[0] if head else last[0]
        return seq, f"the chain ends at {last[0]} where its head says {head[0] if head else 'nothing'}"
    return None


def _check_anchors(q: sqlite3.Connection) -> Iterator[Fault]:
    for (body,) in q.execute("SELECT body FROM event WHERE chain = ? ORDER BY seq", (FLEET,)).fetchall():
        try:
            event = decode(Event, body)
        except (ValueError, TypeError):
            continue  # reported with its chain
        if event.kind != ANCHOR_KIND:
            continue
        for chain, anchor in event.data.items():
            seq, _, hash_ = str(anchor).partition(":")
            found = q.execute("SELECT hash FROM event WHERE chain = ? AND seq = ?", (chain, int(seq))).fetchone()
            if found is None:
                yield CellId(chain), int(seq), f"is missing; the fleet's event {event.seq} anchors it"
            elif Sha256(found[0]) != hash_:
                yield CellId(chain), int(seq), f"is not the event that the fleet's event {event.seq} anchors"
