"""The state of record in memory: Store, Records and Trail, its clock turned by the test."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.event import GENESIS, Event, broken_link, chained
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.domain.units import Instant
from fleetctl.errors import LeaseHeld, StoreUnavailable
from fleetctl.ports.state import Held, Lease, Lost
from tests.fakes.clock import START

R = TypeVar("R")
LONGEST = timedelta(days=36_500)


class MemoryStore:
    """Store, Records and Trail in memory.

    Args:
        now: the store's own clock.
        copies: what goes in and out goes through its encoding; without that it is faster.
    """

    def __init__(self, now: Callable[[], Instant] = lambda: START, *, copies: bool = True) -> None:
        self._now = now
        self._copy: Callable[[Rollout], Rollout] = _copy if copies else lambda r: r
        self._leases: dict[str, tuple[str, int, Instant]] = {}
        self._rollouts: dict[CellId, list[Rollout]] = {}
        self._look_at: dict[CellId, Instant] = {}
        self._orders: dict[CellId, list[Order]] = {}
        self._chains: dict[CellId | None, list[Event]] = {}
        self._anchored: dict[CellId, int] = {}
        self._values: dict[tuple[str, str], bytes] = {}
        self._looks: list[LookRow] = []
        self.down = False

    def close(self) -> None:
        """Nothing to close."""

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailable("store.unreachable", "the store was switched off by a test.")

    def acquire(self, scope: str, holder: str, ttl: timedelta) -> Lease | Held:
        self._check()
        held, token, until = self._leases.get(scope, ("", 0, START))
        if held and until > self._now():
            return Held(scope=scope, holder=held, until=until)
        lease = Lease(scope=scope, holder=holder, token=Token(token + 1), until=self._now() + min(ttl, LONGEST))
        self._leases[scope] = (holder, lease.token, lease.until)
        return lease

    def renew(self, lease: Lease, ttl: timedelta) -> Lease | Lost:
        self._check()
        if not self._is_writer(lease) or self._leases[lease.scope][2] <= self._now():
            return self._lost(lease)
        new = dataclasses.replace(lease, until=self._now() + min(ttl, LONGEST))
        self._leases[lease.scope] = (new.holder, new.token, new.until)
        return new

    def release(self, lease: Lease) -> None:
        self._check()
        if self._is_writer(lease):
            self._leases[lease.scope] = ("", lease.token, START)

    def evict(self, held: Held) -> None:
        self._check()
        holder, token, until = self._leases.get(held.scope, ("", 0, START))
        if (holder, until) == (held.holder, held.until):
            self._leases[held.scope] = ("", token, START)

    def raise_token(self, scope: str, at_least: Token) -> None:
        self._check()
        if at_least > self._leases.get(scope, ("", 0, START))[1]:
            self._leases[scope] = ("", at_least, START)

    def start(self, rollout: Rollout, events: Sequence[Event]) -> None:
        self._check()
        past = self._rollouts.setdefault(rollout.cell, [])
        if past and not past[-1].ended:
            raise LeaseHeld("lease.active", f"{rollout.cell} already has a rollout.", hint="Run: fleetctl status")
        past.append(self._copy(dataclasses.replace(rollout, orders=())))
        self._orders[rollout.cell] = list(rollout.orders)
        self._look_at[rollout.cell] = self._now()
        self.append(events)

    def due(self, limit: int) -> tuple[CellId, ...]:
        self._check()
        now = self._now()
        asked = [c for c, past in self._rollouts.items() if past and (past[-1].ended in ("", "complete") or self._orders.get(c))]
        ready = [c for c in asked if self._look_at[c] <= now and not self._is_held(c)]
        return tuple(sorted(ready, key=lambda c: self._look_at[c])[:limit])

    def load(self, c: CellId) -> Rollout | None:
        self._check()
        past = self._rollouts.get(c)
        return dataclasses.replace(self._copy(past[-1]), orders=tuple(self._orders.get(c, ()))) if past else None

    def history(self, c: CellId) -> tuple[Rollout, ...]:
        self._check()
        return tuple(self._rollouts.get(c, ()))

    def record(
        self,
        lease: Lease,
        before: Rollout,
        after: Rollout,
        events: Sequence[Event],
        look_again: timedelta,
        look: LookRow | None = None,
    ) -> Lost | None:
        self._check()
        if not self._is_writer(lease):
            return self._lost(lease)
        orders = self._orders.setdefault(after.cell, [])
        for order in (Counter(before.orders) - Counter(after.orders)).elements():
            orders.remove(order)
        self._rollouts[after.cell][-1] = self._copy(dataclasses.replace(after, orders=()))
        wait = timedelta(0) if len(orders) > len(after.orders) else min(look_again, LONGEST)
        self._look_at[after.cell] = self._now() + wait
        self.append(events)
        self._looks += [look] if look is not None else []
        self.release(lease)
        return None

    def order(self, c: CellId, order: Order) -> None:
        self._check()
        self._orders.setdefault(c, []).append(order)
        if c in self._look_at:
            self._look_at[c] = min(self._look_at[c], self._now())

    def cells(self) -> tuple[CellId, ...]:
        self._check()
        return tuple(sorted(self._rollouts))

    def holding(self, *codes: str) -> int:
        self._check()
        return sum(1 for rs in self._rollouts.values() if rs and not rs[-1].ended and rs[-1].hold_reason in codes)

    def append(self, events: Sequence[Event]) -> None:
        self._check()
        for event in events:
            chain = self._chains.setdefault(event.cell, [])
            chain.append(chained(event, len(chain) + 1, chain[-1].hash if chain else GENESIS))

    def events(self, c: CellId | None, since: int) -> Iterator[Event]:
        self._check()
        yield from tuple(self._chains.get(c, ()))[since:]

    def anchor_heads(self, at: Instant, actor: Actor) -> Event | None:
        moved = {c: chain[-1] for c, chain in self._chains.items() if c is not None and len(chain) > self._anchored.get(c, 0)}
        if not moved:
            return None
        data = {str(c): f"{e.seq}:{e.hash}" for c, e in moved.items()}
        self.append((Event(at=at, kind="audit.anchor", actor=actor, text=f"{len(moved)} chain head(s) anchored", data=data),))
        self._anchored.update({c: e.seq for c, e in moved.items()})
        return self._chains[None][-1]

    def verify(self) -> list[tuple[CellId | None, int, str]]:
        found = ((c, broken_link(chain)) for c, chain in self._chains.items())
        return [(c, *broken) for c, broken in found if broken is not None]

    def put(self, id_: str, value: object) -> None:
        self._check()
        key = (type(value).__name__.lower(), id_)
        self._values.pop(key, None)
        self._values[key] = canonical(value)

    def get(self, kind: type[R], id_: str) -> R | None:
        self._check()
        body = self._values.get((kind.__name__.lower(), id_))
        return None if body is None else decode(kind, body)

    def newest(self, kind: type[R]) -> R | None:
        return (self.all(kind) or (None,))[-1]

    def all(self, kind: type[R]) -> tuple[R, ...]:
        self._check()
        return tuple(decode(kind, body) for (name, _), body in self._values.items() if name == kind.__name__.lower())

    def rows(self, c: CellId, since: Instant | None) -> Iterator[LookRow]:
        self._check()
        yield from sorted((r for r in self._looks if r.cell == c and (since is None or r.at > since)), key=lambda r: r.at)

    def _is_writer(self, lease: Lease) -> bool:
        return self._leases.get(lease.scope, ("", 0, START))[:2] == (lease.holder, lease.token)

    def _is_held(self, scope: str) -> bool:
        held, _, until = self._leases.get(scope, ("", 0, START))
        return bool(held) and until > self._now()

    def _lost(self, lease: Lease) -> Lost:
        return Lost(scope=lease.scope, seen=Token(self._leases.get(lease.scope, ("", 0, START))[1]))


def _copy(value: Any) -> Any:
    """Send a value through its encoding, as a real store does."""
    return decode(type(value), canonical(value))
