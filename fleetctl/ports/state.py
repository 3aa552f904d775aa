"""Every step, ports layer: the store of record, records, time, jobs, notices and secrets. Never an implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.provision import Job
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.domain.units import Instant

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write one scope until `until` by the store's clock; its token is new."""

    scope: str
    holder: str
    token: Token
    until: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody else has the lease."""

    scope: str
    holder: str
    until: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The token has moved on: whoever asks is not the writer any more."""

    scope: str
    seen: Token


class Store(Protocol):
    """The state of record: current rollout per cell, orders, events. Leases are judged by its clock; each write is one transaction.

    Raises StoreUnavailable (store.unreachable, store.full, store.newer).
    """

    def acquire(self, scope: str, holder: str, ttl: timedelta) -> Lease | Held:
        """Take the lease of a scope (a cell, pool or "fleet") that is free or expired; its token is one higher than ever before."""
        ...

    def renew(self, lease: Lease, ttl: timedelta) -> Lease | Lost:
        """Extend a lease that still holds; same token."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens where it was lost already."""
        ...

    def evict(self, held: Held) -> None:
        """Free the lease of a holder that is known to be dead; nothing happens where it has changed hands since."""
        ...

    def start(self, rollout: Rollout, events: Sequence[Event]) -> None:
        """Make this the current rollout of its cell. Raises LeaseHeld (lease.active) where one has not ended."""
        ...

    def due(self, limit: int) -> tuple[CellId, ...]:
        """Return cells whose look_again has passed and nobody holds, oldest first; ended ones if they completed or have an open order."""
        ...

    def load(self, c: CellId) -> Rollout | None:
        """Return the current rollout with its unobeyed orders; None where there never was one."""
        ...

    def record(
        self,
        lease: Lease,
        before: Rollout,
        after: Rollout,
        events: Sequence[Event],
        look_again: timedelta,
        look: LookRow | None = None,
    ) -> Lost | None:
        """Write rollout, events and the look, drop the orders that `before` carried and `after` does not, free the lease.

        All of it in one transaction: a look without what came of it, or the other way round, could not be judged again. Lost if the
        token moved: nothing was written.
        """
        ...

    def order(self, c: CellId, order: Order) -> None:
        """Add an order and make the cell due at once."""
        ...

    def raise_token(self, scope: str, at_least: Token) -> None:
        """Lift the scope's token after a store-free return."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Add events to their chains."""
        ...

    def events(self, c: CellId | None, since: int) -> Iterator[Event]:
        """Yield a chain's events with seq > since; None is the fleet's own chain."""
        ...

    def anchor_heads(self, at: Instant, actor: Actor) -> Event | None:
        """Write the heads of the chains that grew since the last anchor into the fleet's chain; None where none did."""
        ...

    def cells(self) -> tuple[CellId, ...]:
        """Return every cell that has a rollout."""
        ...

    def holding(self, *codes: str) -> int:
        """Count the current rollouts that have not ended and whose hold_reason is one of `codes`; cheap, for every tick."""
        ...


class Records(Protocol):
    """Keeps values by kind (class name, lower case) and id; a newer value of the same id replaces it, old ones stay readable by id."""

    def put(self, id_: str, value: object) -> None:
        """Save a domain value."""
        ...

    def get(self, kind: type[R], id_: str) -> R | None:
        """Return the value of that id, None where there is none."""
        ...

    def newest(self, kind: type[R]) -> R | None:
        """Return the value put last."""
        ...

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Return every value of that kind, oldest first."""
        ...


class Trail(Protocol):
    """Gives every look that `Store.record` kept, so that a verdict can be recomputed by hand and the report can be drawn."""

    def rows(self, c: CellId, since: Instant | None) -> Iterator[LookRow]:
        """Yield the looks of a cell after `since` (all where None), oldest first."""
        ...


class Clock(Protocol):
    """The only source of time in use cases."""

    def now(self) -> Instant:
        """Return the time, aware UTC."""
        ...

    def wait(self, until: Instant, wake: Callable[[], bool]) -> None:
        """Return at `until`, or sooner when `wake` says so."""
        ...


class Jobs(Protocol):
    """Runs long work by name."""

    def submit(self, job: Job, key: str, at: Instant) -> None:
        """Enqueue; the same key again does nothing."""
        ...

    def run(self, handlers: Mapping[str, Callable[[Job], None]], stop: Callable[[], bool]) -> None:
        """Work until `stop` says so."""
        ...


class Notifier(Protocol):
    """Tells people; never raises."""

    def send(self, e: Event) -> None:
        """Send one event."""
        ...


class Secrets(Protocol):
    """Reads a secret at its use. Raises CredentialsMissing (credentials.missing, credentials.open_file)."""

    def resolve(self, ref: SecretRef) -> str:
        """Return the secret's text; never log it."""
        ...


def holder_name(actor: Actor, pid: int, host: str) -> str:
    """Name a lease's holder so that a person can find it."""
    return f"{actor.name}@{host}:{pid}"
