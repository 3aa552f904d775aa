"""Every step, adapters layer: Store, Records and Trail over one SQLite file. Never decides, never touches traffic.

A light reader for status lines, which imports none of this, is in `fleetctl.adapters.store.status`.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from fleetctl.adapters.store.chains import Fault, append_anchor, append_events, find_faults, read_events
from fleetctl.adapters.store.database import NOW_MS, Database
from fleetctl.adapters.store.looks import add_look, next_looks
from fleetctl.adapters.store.status import StatusRow, read_status
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import ROLLOUT_FORMAT, Order, Rollout
from fleetctl.domain.units import Instant
from fleetctl.errors import LeaseHeld, RowUnreadable, StoreUnavailable
from fleetctl.ports.state import Held, Lease, Lost

R = TypeVar("R")
LONGEST = timedelta(days=36_500)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SqliteStore:
    """The state of record in one file of this machine (Store, Records and Trail of `fleetctl.ports.state`).

    Args:
        path: of the file; it and its folder are made (0600, 0700) unless `create` is False.

    Raises:
        StoreUnavailable: store.unreachable, store.full, store.newer.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._db = Database(path, create=create)

    @property
    def path(self) -> str:
        """Where the file lies."""
        return self._db.path

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    # leases -------------------------------------------------------------------------------------------------------------

    def acquire(self, scope: str, holder: str, ttl: timedelta) -> Lease | Held:
        """Take a lease that is free or expired by this file's clock; its token is one higher than ever before."""
        if not holder:
            raise ValueError("a lease needs a holder")
        with self._db.write() as q:
            now, row = _now_ms(q), _lease(q, scope)
            if row is not None and row[0] and row[2] > now:
                return Held(scope=scope, holder=row[0], until=_from_ms(row[2]))
            token, until = (row[1] if row else 0) + 1, now + _ms(ttl)
            q.execute(
                "INSERT INTO lease (scope, holder, token, until_ms) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (scope) DO UPDATE SET holder = excluded.holder, token = excluded.token, until_ms = excluded.until_ms",
                (scope, holder, token, until),
            )
            return Lease(scope=scope, holder=holder, token=Token(token), until=_from_ms(until))

    def renew(self, lease: Lease, ttl: timedelta) -> Lease | Lost:
        """Extend a lease that still holds; same token. One that has expired or was given back is lost."""
        with self._db.write() as q:
            now, row = _now_ms(q), _lease(q, lease.scope)
            if not _is_writer(row, lease) or (row is not None and row[2] <= now):
                return Lost(scope=lease.scope, seen=Token(row[1] if row else 0))
            until = now + _ms(ttl)
            q.execute("UPDATE lease SET until_ms = ? WHERE scope = ?", (until, lease.scope))
            return dataclasses.replace(lease, until=_from_ms(until))

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens where it was lost already."""
        with self._db.write() as q:
            if _is_writer(_lease(q, lease.scope), lease):
                _free(q, lease.scope)

    def evict(self, held: Held) -> None:
        """Free the lease of a holder that is known to be dead; nothing happens where it has changed hands since."""
        with self._db.write() as q:
            row = _lease(q, held.scope)
            if row is not None and row[0] == held.holder and _from_ms(row[2]) == held.until:
                _free(q, held.scope)

    def raise_token(self, scope: str, at_least: Token) -> None:
        """Lift the scope's token after a store-free return; whoever held a lower one has lost it."""
        with self._db.write() as q:
            q.execute(
                "INSERT INTO lease (scope, holder, token, until_ms) VALUES (?, '', ?, 0)"
                " ON CONFLICT (scope) DO UPDATE SET token = excluded.token, holder = '', until_ms = 0 WHERE excluded.token > token",
                (scope, at_least),
            )

    # rollouts -----------------------------------------------------------------------------------------------------------

    def start(self, rollout: Rollout, events: Sequence[Event]) -> None:
        """Make this the cell's current rollout, due at once; orders that were given to the one before are closed.

        Raises:
            LeaseHeld: lease.active, where one has not ended.
        """
        with self._db.write() as q:
            now = _now_ms(q)
            row = q.execute("SELECT ended, plan, phase FROM rollout WHERE cell = ? AND is_current = 1", (rollout.cell,)).fetchone()
            if row is not None and not row[0]:
                raise LeaseHeld(
                    "lease.active",
                    f"{rollout.cell} already has a rollout of plan {row[1]} in phase {row[2]}.",
                    hint="Run: fleetctl status",
                )
            q.execute("UPDATE rollout SET is_current = 0 WHERE cell = ? AND is_current = 1", (rollout.cell,))
            _close_orders(q, rollout.cell, None, now, "overtaken")
            columns = {**_columns(rollout), "cell": rollout.cell, "is_current": 1, "look_at_ms": now, "started_ms": now, "updated_ms": now}
            names = ", ".join(columns)
            q.execute(f"INSERT INTO rollout ({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values()))  # noqa: S608
            for order in rollout.orders:
                _add_order(q, rollout.cell, order, now)
            append_events(q, events)

    def due(self, limit: int) -> tuple[CellId, ...]:
        """Return cells whose look_again has passed and nobody holds, oldest first; ended ones if they completed or have an open order."""
        with self._db.read() as q:
            now = _now_ms(q)
            rows = q.execute(
                "SELECT r.cell FROM rollout r LEFT JOIN lease l ON l.scope = r.cell"
                " WHERE r.is_current = 1 AND r.look_at_ms <= ?"
                " AND (r.ended IN ('', 'complete') OR EXISTS (SELECT 1 FROM wish w WHERE w.cell = r.cell AND w.closed_ms IS NULL))"
                " AND (l.scope IS NULL OR l.holder = '' OR l.until_ms <= ?)"
                " ORDER BY r.look_at_ms, r.id LIMIT ?",
                (now, now, limit),
            )
            return tuple(CellId(r[0]) for r in rows)

    def load(self, c: CellId) -> Rollout | None:
        """Return the current rollout with its open orders, oldest first; None where there never was one."""
        with self._db.read() as q:
            row = q.execute("SELECT format_version, body FROM rollout WHERE cell = ? AND is_current = 1", (c,)).fetchone()
            orders = q.execute("SELECT body FROM wish WHERE cell = ? AND closed_ms IS NULL ORDER BY id", (c,)).fetchall()
        if row is None:
            return None
        return dataclasses.replace(self._rollout(c, row), orders=tuple(self._decoded(Order, o[0], f"an order for {c}") for o in orders))

    def history(self, c: CellId) -> tuple[Rollout, ...]:
        """Return every rollout the cell ever had, oldest first, without orders; the last is the current one."""
        with self._db.read() as q:
            rows = q.execute("SELECT format_version, body FROM rollout WHERE cell = ? ORDER BY id", (c,)).fetchall()
        return tuple(self._rollout(c, r) for r in rows)

    def record(
        self,
        lease: Lease,
        before: Rollout,
        after: Rollout,
        events: Sequence[Event],
        look_again: timedelta,
        look: LookRow | None = None,
    ) -> Lost | None:
        """Write rollout, events and the look, close the orders that `before` carried and `after` does not, free the lease.

        An order that came meanwhile makes the cell due at once. Returns Lost, having written nothing, if the token moved.
        """
        with self._db.write() as q:
            now, row = _now_ms(q), _lease(q, lease.scope)
            if not _is_writer(row, lease):
                return Lost(scope=lease.scope, seen=Token(row[1] if row else 0))
            obeyed = Counter(canonical(o) for o in before.orders) - Counter(canonical(o) for o in after.orders)
            for body, times in obeyed.items():
                _close_orders(q, after.cell, (body.decode(), times), now, "obeyed")
            left = q.execute("SELECT count(*) FROM wish WHERE cell = ? AND closed_ms IS NULL", (after.cell,)).fetchone()[0]
            look_at = now if left > len(after.orders) else now + _ms(look_again)
            columns = {**_columns(after), "look_at_ms": look_at, "updated_ms": now}
            done = q.execute(
                f"UPDATE rollout SET {', '.join(f'{n} = ?' for n in columns)} WHERE cell = ? AND is_current = 1",  # noqa: S608
                (*columns.values(), after.cell),
            )
            if done.rowcount != 1:
                raise StoreUnavailable("store.unreachable", f"{after.cell} has no rollout to record.", hint="Run: fleetctl status")
            append_events(q, events)
            if look is not None:
                add_look(q, look, _us(look.at))
            _free(q, lease.scope)
            return None

    def order(self, c: CellId, order: Order) -> None:
        """Add an order and make the cell due at once."""
        with self._db.write() as q:
            now = _now_ms(q)
            _add_order(q, c, order, now)
            q.execute("UPDATE rollout SET look_at_ms = min(look_at_ms, ?) WHERE cell = ? AND is_current = 1", (now, c))

    def cells(self) -> tuple[CellId, ...]:
        """Return every cell that has a rollout, by name."""
        with self._db.read() as q:
            return tuple(CellId(r[0]) for r in q.execute("SELECT cell FROM rollout WHERE is_current = 1 ORDER BY cell"))

    def holding(self, *codes: str) -> int:
        """Count the current rollouts that have not ended and hold for one of these reasons."""
        marks = ",".join("?" * len(codes))
        with self._db.read() as q:
            row = q.execute(
                f"SELECT count(*) FROM rollout WHERE is_current = 1 AND ended = '' AND hold_reason IN ({marks})",  # noqa: S608 - only marks
                codes,
            ).fetchone()
        return int(row[0])

    def status_rows(self) -> tuple[StatusRow, ...]:
        """Return one light row per cell, by name."""
        return read_status(self._db)

    # events -------------------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> None:
        """Add events to their chains."""
        with self._db.write() as q:
            append_events(q, events)

    def events(self, c: CellId | None, since: int) -> Iterator[Event]:
        """Yield a chain's events with seq > since; None is the fleet's own chain."""
        return read_events(self._db, c, since)

    def anchor_heads(self, at: Instant, actor: Actor) -> Event | None:
        """Write the heads of the chains that grew since the last anchor into the fleet's chain; None where none did."""
        return append_anchor(self._db, at, actor)

    def verify(self) -> list[Fault]:
        """Return (cell or None, seq, what is wrong) of each chain that does not hold; [] where all do."""
        return find_faults(self._db)

    # records ------------------------------------------------------------------------------------------------------------

    def put(self, id_: str, value: object) -> None:
        """Save a domain value under its kind (class name, lower case) and id."""
        kind, body = type(value).__name__.lower(), canonical(value).decode()
        with self._db.write() as q:
            q.execute("DELETE FROM value WHERE kind = ? AND key = ?", (kind, id_))
            q.execute("INSERT INTO value (kind, key, body) VALUES (?, ?, ?)", (kind, id_, body))

    def get(self, kind: type[R], id_: str) -> R | None:
        """Return the value of that id, None where there is none."""
        rows = self._values(kind, "AND key = ?", (id_,))
        return rows[0] if rows else None

    def newest(self, kind: type[R]) -> R | None:
        """Return the value put last."""
        rows = self._values(kind, "ORDER BY rank DESC LIMIT 1", ())
        return rows[0] if rows else None

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Return every value of that kind, by the time it was last put, oldest first."""
        return self._values(kind, "ORDER BY rank", ())

    # looks --------------------------------------------------------------------------------------------------------------

    def rows(self, c: CellId, since: Instant | None) -> Iterator[LookRow]:
        """Yield the looks of a cell after `since` (all where None), oldest first."""
        after = (-(2**62) if since is None else _us(since), 2**62)
        while True:
            try:
                with self._db.read() as q:
                    page = next_looks(q, c, after)
            except (zlib.error, ValueError, TypeError) as e:
                text = f"packed looks at {c} in {self.path} cannot be read: {e}."
                raise RowUnreadable("store.unreachable", text, hint="Run: fleetctl audit verify") from e
            for _, _, body in page:
                yield self._decoded(LookRow, body, f"a look at {c}")
            if not page:
                return
            after = (page[-1][0], page[-1][1])

    def _values(self, kind: type[R], where: str, args: tuple[str, ...]) -> tuple[R, ...]:
        name = kind.__name__.lower()
        with self._db.read() as q:
            rows = q.execute(f"SELECT body FROM value WHERE kind = ? {where}", (name, *args)).fetchall()  # noqa: S608
        return tuple(self._decoded(kind, r[0], f"a {name}") for r in rows)

    def _rollout(self, c: CellId, row: tuple[int, str]) -> Rollout:
        if row[0] > ROLLOUT_FORMAT:
            text = f"the rollout of {c} was written by a newer release (format {row[0]}; this one knows {ROLLOUT_FORMAT})."
            raise RowUnreadable("store.newer", text, hint="Upgrade fleetctl.")
        return self._decoded(Rollout, row[1], f"the rollout of {c}")

    def _decoded(self, kind: type[R], body: str, what: str) -> R:
        try:
            return decode(kind, body)
        except (ValueError, TypeError) as e:
            text = f"{what} in {self.path} cannot be read: {e}."
            raise RowUnreadable("store.unreachable", text, hint="Run: fleetctl audit verify") from e


def _now_ms(q: sqlite3.Connection) -> int:
    return int(q.execute(f"SELECT {NOW_MS}").fetchone()[0])


def _lease(q: sqlite3.Connection, scope: str) -> tuple[str, int, int] | None:
    row: tuple[str, int, int] | None = q.execute("SELECT holder, token, until_ms FROM lease WHERE scope = ?", (scope,)).fetchone()
    return row


def _is_writer(row: tuple[str, int, int] | None, lease: Lease) -> bool:
    return row is not None and row[0] == lease.holder and row[1] == lease.token


def _free(q: sqlite3.Connection, scope: str) -> None:
    q.execute("UPDATE lease SET holder = '', until_ms = 0 WHERE scope = ?", (scope,))


def _add_order(q: sqlite3.Connection, c: CellId, order: Order, now: int) -> None:
    q.execute("INSERT INTO wish (cell, body, added_ms) VALUES (?, ?, ?)", (c, canonical(order).decode(), now))


def _close_orders(q: sqlite3.Connection, c: CellId, only: tuple[str, int] | None, now: int, why: str) -> None:
    if only is None:
        q.execute("UPDATE wish SET closed_ms = ?, closed_why = ? WHERE cell = ? AND closed_ms IS NULL", (now, why, c))
    else:
        q.execute(
            "UPDATE wish SET closed_ms = ?, closed_why = ? WHERE id IN"
            " (SELECT id FROM wish WHERE cell = ? AND closed_ms IS NULL AND body = ? ORDER BY id LIMIT ?)",
            (now, why, c, *only),
        )


def _columns(r: Rollout) -> dict[str, str | int]:
    here = r.spec.phases[r.step]
    return {
        "plan": r.plan,
        "attempt": r.attempt,
        "phase": here.phase,
        "step": r.step,
        "steps": len(r.spec.phases),
        "weight_bp": r.weight_bp,
        "want_bp": here.weight_bp,
        "pass_through": r.until,
        "direction": r.direction,
        "paused": int(r.paused),
        "step_done": int(r.step_done),
        "ended": r.ended,
        "hold_reason": r.hold_reason,
        "format_version": r.format_version,
        "body": canonical(dataclasses.replace(r, orders=())).decode(),
    }


def _ms(span: timedelta) -> int:
    return max(0, min(span, LONGEST) // timedelta(milliseconds=1))


def _us(at: Instant) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _from_ms(ms: int) -> Instant:
    return _EPOCH + timedelta(milliseconds=ms)
