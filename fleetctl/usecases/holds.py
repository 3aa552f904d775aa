"""Migrate, use-case layer: pins the source's minimum, with what stood there saved before it is changed. Never imports an adapter.

A pin is a record: pinning -> pinned -> restoring -> restored. Each is written before the call that it announces, so whoever comes after a
kill looks at what stands and knows whether the call was made. Several cells may need one pool: the last one gives it back. A cell that is
complete needs its way home until people give the pool back: only `release` ends that pin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from fleetctl.domain.holds import MOST_WRITES, SILENT, Pin, PinState, Said, Standing, pin_id, wanted_minimum
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.rollout import Decision, Hold, Observation, Rollout, Unhold
from fleetctl.domain.split import Split
from fleetctl.domain.units import Instant
from fleetctl.errors import CredentialsMissing, FleetctlError, LeaseHeld, StoreUnavailable
from fleetctl.ports.hands import Hands
from fleetctl.ports.state import Clock, Held, Lease, Lost, Records, Store
from fleetctl.ports.traffic import Holds
from fleetctl.rollout.others import is_ours

TTL = timedelta(seconds=10)
"""Of the lease under which one pool's pins are written, renewed before each call: shorter than a cell's, so that it does not outlive it."""
EVERY = timedelta(seconds=30)
"""How often a pinned minimum is looked at."""
FIND = timedelta(seconds=8)
"""Longest that others are looked for before a cell begins; who was not asked by then is a gap."""
WAIT = timedelta(seconds=20)
"""How long a cell waits to begin because an owner of its source's size is silent; then it begins without a hold, and says so."""
SLOW = timedelta(seconds=1)
"""A pool that took longer to give back is the last one of a sweep: cells wait for it."""


UNKNOWN = "not known"
"""Mark of having said that nobody knows whether a minimum stands: once for each pin, however often it is tried."""


class Kept(Store, Records, Protocol):
    """The store of record, which keeps the pins too."""


class KeptHolds:
    """`Holds` over the fleet's other hands, remembered in the store.

    Args:
        holder: under which the pins' leases are taken.
    """

    def __init__(self, hands: Hands, store: Kept, clock: Clock, holder: str) -> None:
        self._hands, self._store, self._clock, self._holder = hands, store, clock, holder
        self._looked: dict[str, tuple[Instant, Standing | None]] = {}
        self._waits: dict[PoolId, Instant] = {}
        self._next_swept = PoolId("")
        self._found: dict[PoolId, tuple[Instant, tuple[Owner | Gap, ...]]] = {}
        self._told: set[tuple[str, str]] = set()

    def owners(self, pool: PoolId) -> tuple[Owner, ...]:
        """List who else writes this pool's size."""
        return tuple(o for o in self._hands.of_pool(pool) if isinstance(o, Owner))

    def found(self, c: CellId, pools: Sequence[PoolId]) -> tuple[Owner | Gap, ...]:
        """List who else writes these pools' sizes and the cell's route, and what could not be asked in time."""
        out: list[Owner | Gap] = []
        end = self._clock.now() + FIND
        for pool in dict.fromkeys(pools):
            if self._clock.now() >= end:
                out.append(Gap(scope=f"pool {pool}", reason=f"not asked: others took {FIND.seconds} s", source="other hands"))
                continue
            at, seen = self._found.get(pool, (None, ()))
            out.extend(seen if at is not None and end - at < 2 * FIND else self._look(pool))
        if self._clock.now() >= end:
            out.append(Gap(scope=f"route of {c}", reason=f"not asked: others took {FIND.seconds} s", source="other hands"))
        else:
            out.extend(self._hands.of_route(c))
        return tuple(out)

    def pin(self, pool: PoolId, minimum: int, token: Token, c: CellId) -> tuple[Said, ...]:
        """Raise the owner's minimum for a cell, after saving what stood there; again: put it back where others took it, 3 times at most."""
        found = self._look(pool)
        if not any(c in p.cells for p in self._pins(pool)):
            self._wait_for(pool, found)
        scalers = [o for o in found if isinstance(o, Owner) and o.kind == "autoscaler" and o.ref and o.minimum is not None]
        others = tuple(o.name for o in found if isinstance(o, Owner) and o.kind == "gitops")
        if not scalers:
            return ()
        with self._writing(pool) as lease:
            return tuple(said for o in scalers for said in self._pin_one(o, minimum, c, others, lease))

    def _look(self, pool: PoolId) -> tuple[Owner | Gap, ...]:
        found = self._hands.of_pool(pool)
        self._found[pool] = (self._clock.now(), found)
        return found

    def _wait_for(self, pool: PoolId, found: Sequence[Owner | Gap]) -> None:
        """Let a cell begin later where an owner is silent: nobody pins its minimum once the cell has begun.

        Raises:
            LeaseHeld: hold.silent, for WAIT at most.
        """
        silent = [g.reason for g in found if isinstance(g, Gap) and g.code == SILENT]
        if not silent:
            self._waits.pop(pool, None)
        elif self._clock.now() - self._waits.setdefault(pool, self._clock.now()) < WAIT:
            raise LeaseHeld(SILENT, f"who sizes pool {pool} is asked again: {silent[0]}", hint="It is tried again by itself")

    def watch(self, pool: PoolId, c: CellId) -> str:
        """Say who lowered a minimum that is pinned for this cell, "" where nobody did; changes nothing.

        Each minimum is asked for at most every 30 s, however many cells it is held for.
        """
        pins = (p for p in self._pins(pool) if c in p.cells and p.state == "pinned")
        return "; ".join(filter(None, (self._taken(p) for p in pins)))

    def is_unheld(self, pool: PoolId, c: CellId) -> bool:
        """Tell whether a minimum for this cell was announced and never seen to stand: its owner did not answer. At most every 30 s."""
        now, due = self._clock.now(), False
        for p in self._pins(pool):
            key = pin_id(p.pool, p.ref)
            at, _ = self._looked.get(key, (None, None))
            if c in p.cells and p.state == "pinning" and (at is None or now - at >= EVERY):
                self._looked[key], due = (now, None), True
        return due

    def writer(self, c: CellId) -> str:
        """Name who wrote a cell's route last beside us, "" where nobody can tell."""
        return self._hands.writer(c)

    def restore(self, pool: PoolId, token: Token, c: CellId) -> tuple[Said, ...]:
        """Put back what stood there once no cell needs it any more, where what stands is ours."""
        if not any(c in p.cells for p in self._pins(pool)):
            return ()
        with self._writing(pool) as lease:
            return tuple(said for p in self._pins(pool) for said in self._drop(p, {c}, lease))

    def release(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        """Put back what stood there once people gave the pool back; what its owner refuses now is swept up later."""
        out: list[tuple[CellId, Said]] = []
        if not self._pins(pool):
            return ()
        with self._writing(pool) as lease:
            for p in self._pins(pool):
                given = self._put(p, "restoring") if all(self._is_left(c, pool) for c in p.cells) else p
                dropped = self._drop(given, {c for c in p.cells if self._is_left(c, pool)}, lease)
                out.extend((p.cells[0], said) for said in dropped)
        return tuple(out)

    def sweep(self) -> tuple[tuple[CellId, Said], ...]:
        """Give back what nobody needs any more though nobody gave it back."""
        out: list[tuple[CellId, Said]] = []
        pools = sorted({p.pool for p in self._store.all(Pin) if p.is_open}, key=lambda p: (p < self._next_swept, p))
        began = self._clock.now()
        for pool in pools:
            if self._clock.now() - began > SLOW:  # an owner that does not answer: cells are due
                self._next_swept = pool
                break
            over = {p.ref: self._over(p) for p in self._pins(pool)}
            if not any(set(p.cells) <= over[p.ref] for p in self._pins(pool)):
                continue
            try:
                with self._writing(pool) as lease:
                    for p in self._pins(pool):
                        dropped = self._drop(p, over.get(p.ref, set()), lease)
                        out.extend((p.cells[0], said) for said in dropped if self._is_news(p, said.text))
            except LeaseHeld:
                continue
        return tuple(out)

    def warm(self, pool: PoolId) -> None:
        """Do nothing: a pinned minimum keeps the pool's replicas up."""

    def _over(self, p: Pin) -> set[CellId]:
        """Return which cells need a pin no more; one that is being given back is given back, also where they are complete."""
        is_over = self._is_left if p.state == "restoring" else self._is_home
        return {c for c in p.cells if is_over(c, p.pool)}

    def _is_home(self, c: CellId, pool: PoolId) -> bool:
        """Tell whether a cell is home for good, has a split that stays, or moves from elsewhere now: it needs no minimum here."""
        r = self._store.load(c)
        return r is None or r.spec.source != pool or (bool(r.ended) and (r.ended != "complete" or r.spec.stays_split))

    def _is_left(self, c: CellId, pool: PoolId) -> bool:
        r = self._store.load(c)
        return r is None or r.spec.source != pool or bool(r.ended)

    def _is_news(self, p: Pin, text: str) -> bool:
        """Tell whether this was not said by this process yet: an owner that does not answer is asked again and again."""
        mark = (pin_id(p.pool, p.ref), text)
        is_news = mark not in self._told
        self._told.add(mark)
        return is_news

    def _pins(self, pool: PoolId) -> tuple[Pin, ...]:
        return tuple(p for p in self._store.all(Pin) if p.pool == pool and p.is_open)

    @contextmanager
    def _writing(self, pool: PoolId) -> Iterator[Lease]:
        got = self._store.acquire(f"hold.{pool}", self._holder, TTL)
        if isinstance(got, Held):
            raise LeaseHeld("lease.held", f"{got.holder} is at the minimum of pool {pool}.", hint="It is tried again by itself")
        try:
            yield got
        finally:
            self._release(got)

    def _release(self, lease: Lease) -> None:
        try:
            self._store.release(lease)
        except StoreUnavailable:
            return  # it ends by itself

    def _put(self, p: Pin, state: PinState | None = None) -> Pin:
        done = replace(p, state=state or p.state)
        self._looked.pop(pin_id(p.pool, p.ref), None)
        self._store.put(pin_id(p.pool, p.ref), done)
        return done

    def _pin_one(self, o: Owner, minimum: int, c: CellId, others: tuple[str, ...], lease: Lease) -> Iterator[Said]:
        known = self._store.get(Pin, pin_id(o.pool, o.ref))
        was = o.minimum or 0
        if known is None or not known.is_open:
            to = wanted_minimum(was, o.maximum, o.size, minimum if o.counts == "machines" else 0)
            self._told.discard((pin_id(o.pool, o.ref), UNKNOWN))
            at = self._clock.now()
            pin = Pin(pool=o.pool, ref=o.ref, name=o.name, was=was, to=to, cells=(c,), at=at, others=others, default=o.default)
            yield from self._write(self._put(pin), was, lease)
            return
        pin = replace(known, cells=tuple(dict.fromkeys((*known.cells, c))), others=others)
        if pin.state == "restoring":  # whoever was giving it back was killed: a cell needs it again
            pin = replace(pin, state="pinning", cells=(c,))
        if pin != known:
            self._put(pin)
        if was >= pin.to:
            if pin.state == "pinning":  # it was set, and its answer was lost
                yield _pinned(pin)
            self._put(pin, "pinned")
        elif pin.state == "pinning":
            yield from self._write(pin, was, lease)
        elif pin.writes < MOST_WRITES:
            yield from self._write(self._put(replace(pin, writes=pin.writes + 1)), was, lease)
        elif self._is_news(pin, "given up"):
            yield Said(kind="hold.given_up", text=f"{pin.name}: its minimum is {was}; we have set {pin.to} {pin.writes} times and stop")

    def _write(self, pin: Pin, was: int, lease: Lease) -> Iterator[Said]:
        """Set what was announced, under a lease that still holds, and look whether it stands."""
        if was != pin.to:
            try:
                self._set(pin, was, pin.to, lease)
                stands = self._hands.standing(pin.pool, pin.ref).minimum
            except CredentialsMissing as e:
                self._put(pin, "refused")
                yield Said(kind="hold.gap", text=f"{pin.name}: its minimum {pin.was} cannot be pinned at {pin.to}: {e.message}")
                return
            except FleetctlError as e:
                if isinstance(e, (LeaseHeld, StoreUnavailable)):
                    raise
                if self._is_news(pin, UNKNOWN):  # it is tried again by itself
                    text = f"{pin.name}: whether its minimum is pinned at {pin.to} is not known: {e.message}"
                    yield Said(kind="hold.gap", text=text)
                return
            if stands != pin.to:
                yield Said(kind="hold.gap", text=f"{pin.name}: its minimum is {stands} after {pin.to} was set: somebody else writes it")
                self._put(pin, "pinned")
                return
        self._put(pin, "pinned")
        yield _pinned(pin)

    def _set(self, pin: Pin, was: int, to: int, lease: Lease) -> bool:
        if isinstance(self._store.renew(lease, TTL), Lost):
            raise LeaseHeld("lease.held", f"somebody else is at the minimum of pool {pin.pool}.", hint="It is tried again by itself")
        return self._hands.set_minimum(pin.pool, pin.ref, was, to, pin.default if to == pin.was else None)

    def _taken(self, p: Pin) -> str:
        key, now = pin_id(p.pool, p.ref), self._clock.now()
        at, found = self._looked.get(key, (None, None))
        if at is None or now - at >= EVERY:
            try:
                found = self._hands.standing(p.pool, p.ref)
            except FleetctlError:
                found = None
            self._looked[key] = (now, found)
        if found is None:
            return ""  # who cannot be asked now has not been seen to write
        if found.minimum is None:
            return f"{p.name} is gone: its minimum {p.to} holds nothing any more"
        if found.minimum >= p.to:
            return ""
        who = found.writer or _suspects(p) or "somebody else"
        return f"{who} set the minimum of {p.name} to {found.minimum}, where {p.to} is held for {', '.join(p.cells)}"

    def _drop(self, p: Pin, cells: set[CellId], lease: Lease) -> Iterator[Said]:
        left = tuple(c for c in p.cells if c not in cells)
        if left:
            if left != p.cells:
                self._put(replace(p, cells=left))
            return
        try:
            found = self._hands.standing(p.pool, p.ref)
            yield self._give_back(p, found, lease)
        except FleetctlError as e:
            if isinstance(e, (LeaseHeld, StoreUnavailable)):
                raise
            text = f"{p.name}: its minimum {p.was} is not given back yet ({p.to} stands): {e.message}"
            yield Said(kind="hold.not_restored", text=text)

    def _give_back(self, p: Pin, found: Standing, lease: Lease) -> Said:
        if found.minimum == p.was or found.minimum != p.to:
            return self._given_back(p, found)
        self._put(p, "restoring")
        if not self._set(p, p.to, p.was, lease):  # somebody wrote since it was read
            return self._given_back(p, self._hands.standing(p.pool, p.ref))
        self._put(p, "restored")
        return Said(kind="hold.restored", text=f"{p.name}: minimum {p.was} again")

    def _given_back(self, p: Pin, found: Standing) -> Said:
        """Put on record what stands where there is nothing of ours to give back."""
        if found.minimum == p.was:
            self._put(p, "restored")
            return Said(kind="hold.restored", text=f"{p.name}: minimum {p.was} again")
        self._put(p, "left")
        stands = "it is gone" if found.minimum is None else f"{found.writer or 'somebody else'} set it to {found.minimum} meanwhile"
        return Said(kind="hold.left", text=f"{p.name}: its minimum was {p.was} before us; {stands}, which is left")


def _pinned(p: Pin) -> Said:
    return Said(kind="hold.pinned", text=f"{p.name}: minimum {p.to} while {', '.join(p.cells)} moves (it was {p.was})")


def _suspects(p: Pin) -> str:
    return f"somebody else (it belongs to {', '.join(p.others)})" if p.others else ""


def hold(r: Rollout, pool: PoolId, minimum: int, token: Token, holds: Holds) -> tuple[Said, ...]:
    """Pin the source's minimum; before anything moves, also say who else writes, and what nobody could tell. Raises LeaseHeld."""
    said = holds.pin(pool, minimum, token, r.cell)
    is_first = r.phase == "preflight" and r.settled_at is None
    return said if not is_first else (*said_of(holds.found(r.cell, (pool, r.spec.target))), *said)


def give_back(r: Rollout, pool: PoolId, token: Token, holds: Holds) -> tuple[Said, ...]:
    """Put the source's minimum back; what cannot be now is swept up later and keeps no cell from its end."""
    try:
        return holds.restore(pool, token, r.cell)
    except LeaseHeld:
        return ()


def theirs(r: Rollout, split: Split, holds: Holds, now: Instant) -> dict[str, Any]:
    """Say what others wrote since, for an observation: to the source's minimum, and who wrote the weight where it is not ours."""
    if r.ended not in ("", "complete") or r.settled_at is None or r.direction == "home":
        return {}
    return {
        "foreign_write": holds.watch(r.spec.source, r.cell),
        "writer": "" if is_ours(r, split, now) else holds.writer(r.cell),
        "is_unheld": not r.ended and holds.is_unheld(r.spec.source, r.cell),
    }


def held_again(r: Rollout, d: Decision, seen: Observation) -> Decision:
    """Pin the source's minimum again beside what was decided, where its owner did not answer before; nothing on the way home."""
    stays = d.next.direction == "forward" and not d.next.ended
    if not seen.is_unheld or not stays or any(isinstance(e, (Hold, Unhold)) for e in d.effects):
        return d
    return replace(d, effects=(*d.effects, Hold(pool=r.spec.source)))


def said_of(found: Sequence[Owner | Gap]) -> tuple[Said, ...]:
    """Return what was found of other hands, and what could not be asked, in sentences."""
    return tuple(_said(x) for x in found)


def _said(x: Owner | Gap) -> Said:
    if isinstance(x, Gap):
        return Said(kind="hands.gap", text=f"{x.scope}: not known who else writes it ({x.source}): {x.reason}")
    what = f"route of {x.cell}" if x.cell is not None else f"pool {x.pool}"
    if x.kind == "gitops":
        return Said(kind="hands.found", text=f"{what} belongs to {x.name}: what it applies overwrites ours")
    most = "" if x.maximum is None else f" to {x.maximum}"
    return Said(kind="hands.found", text=f"{what} is sized by {x.name}: {x.size} {x.counts}, minimum {x.minimum}{most}")
