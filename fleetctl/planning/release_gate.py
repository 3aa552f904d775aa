"""Release, planning layer: what must be proven before a pool may be given back. Pure; never asks a router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Check
from fleetctl.domain.provision import Drill
from fleetctl.domain.release import Role
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.units import FULL_BP, Instant

DRILL_AGE = timedelta(days=30)
"""How old the last green rehearsal of going home may be. Source: design, the release gate."""


def role_of(pool: PoolId, fleet: Fleet, rollouts: Mapping[CellId, Rollout]) -> Role:
    """Return what a pool is to the cells; a source, where it is both."""
    if any(c.source == pool for c in fleet.cells) or any(r.spec.source == pool for r in rollouts.values()):
        return "source"
    return "target" if any(r.spec.target == pool for r in rollouts.values()) else "unused"


MOST_ASKED = 200
"""Most routers that are asked of cells that no migration on record moves."""


def strays(pool: PoolId, fleet: Fleet, rollouts: Mapping[CellId, Rollout]) -> tuple[CellId, ...]:
    """Return the cells that no migration on record here moves and that a pool could serve: another workspace may be moving them."""
    region = fleet.pool(pool).region
    could = (
        c.id
        for c in fleet.cells
        if c.id not in rollouts and c.source != pool and (c.target == pool or (c.target is None and region in (c.region, *c.regions)))
    )
    return tuple(islice(could, MOST_ASKED))


def release_checks(
    pool: PoolId,
    fleet: Fleet,
    rollouts: Mapping[CellId, Rollout],
    shown: Mapping[CellId, int | None],
    drills: Mapping[CellId, Drill],
    now: Instant,
    gone: Collection[str] = (),
    *,
    answers: Mapping[CellId, int | None],
) -> tuple[Check, ...]:
    """Return what must hold, with what is so now; every one must be ok.

    Args:
        rollouts: the current one of every cell that ever moved; shown: what each router sends to the target, basis points (None: silent),
            of the `strays` too; answers: what each router still has open on this pool (None: nobody can tell, so some may be).
        drills: the newest rehearsal per cell.
        gone: routers, or cells whose router the fleet file has no more, that a person says are gone for good; one that answers is not.
    """
    leaving = {c.id for c in fleet.cells if c.source == pool} | {c for c, r in rollouts.items() if r.spec.source == pool}
    coming = {c for c, r in rollouts.items() if r.spec.target == pool and c not in leaving}
    routers = {c.id: c.router.name for c in fleet.cells}
    served = {
        c: _Shown(bp=shown.get(c), router=routers.get(c, str(c)), is_gone=bool({str(c), routers.get(c)} & {*gone}), answers=answers.get(c))
        for c in shown
    }
    silent = _Shown(bp=None, router="", is_gone=False, answers=None)
    checks = [_left(pool, c, rollouts.get(c), served.get(c, silent)) for c in sorted(leaving)]
    checks += [_not_there(pool, c, rollouts[c], served.get(c, silent)) for c in sorted(coming)]
    checks += _moved_elsewhere(pool, {c: served.get(c, silent) for c in strays(pool, fleet, rollouts)})
    checks += [_rehearsed(c, drills.get(c), now) for c in sorted(leaving)]
    checks += _paid(pool, fleet, now)
    return tuple(checks) or (Check(name="traffic", ok=True, detail=f"no cell was ever routed to {pool}"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a cell's router sends to the target, basis points; None where it is silent, and whether it is said to be gone for good.

    Args:
        answers: still open on the pool, None where nobody can tell.
    """

    bp: int | None
    router: str
    is_gone: bool
    answers: int | None

    @property
    def open(self) -> str:
        """What of its answers may still come from the pool, in words, "" where none is."""
        if self.answers is None:
            return "its router does not tell whether answers are still open there, so some may be"
        return f"{self.answers} answers may still be open there; the same command again looks again" if self.answers else ""

    @property
    def silence(self) -> str:
        """What its silence means, in words."""
        if self.is_gone:
            return f"router {self.router} does not answer, and is said to be gone for good"
        return f"its router does not answer, so nothing proves where it is served.{self.way}"

    @property
    def way(self) -> str:
        """How to say that it is gone."""
        return f" Where it is gone for good, or never was: --router-gone {self.router}" if self.router else ""


def _left(pool: PoolId, cell: CellId, r: Rollout | None, shown: _Shown) -> Check:
    name = f"traffic of {cell}"
    if r is None or r.spec.source != pool:
        return Check(name=name, ok=False, detail=f"it runs on {pool} and has not moved")
    if r.ended != "complete":
        at = r.ended.replace("_", " ") or f"{r.phase} at {r.weight_bp / 100:g} %"
        return Check(name=name, ok=False, detail=f"its soak is not over: {at}")
    if shown.bp is None:
        return Check(name=name, ok=shown.is_gone, detail=f"soak is over; {shown.silence}")
    if shown.bp != FULL_BP:
        return Check(name=name, ok=False, detail=f"its router shows {shown.bp / 100:g} % on {r.spec.target}, not 100 %")
    if shown.open:
        return Check(name=name, ok=False, detail=f"100 % on {r.spec.target}, soak is over; {shown.open}")
    return Check(name=name, ok=True, detail=f"100 % on {r.spec.target}, soak is over")


def _not_there(pool: PoolId, cell: CellId, r: Rollout, shown: _Shown) -> Check:
    name = f"traffic of {cell}"
    if shown.bp is None and not shown.is_gone:
        return Check(name=name, ok=False, detail=shown.silence)
    if shown.bp:
        return Check(name=name, ok=False, detail=f"{pool} serves {shown.bp / 100:g} % of it")
    if not r.ended:
        return Check(name=name, ok=False, detail=f"it is on its way to {pool} ({r.phase}). Run: fleetctl abort {cell}")
    if shown.bp is not None and shown.open:
        return Check(name=name, ok=False, detail=f"0 % on {pool}; {shown.open}")
    how = f"0 % on {pool}" if shown.bp is not None else shown.silence
    return Check(name=name, ok=True, detail=f"{how}: {r.ended.replace('_', ' ')}")


def _moved_elsewhere(pool: PoolId, strays: Mapping[CellId, _Shown]) -> Iterator[Check]:
    """Yield what routers say of cells that no migration on record here moves: one that is silent, once, may serve any of its cells."""
    mute = Counter(s for s in strays.values() if s.bp is None)
    for s, cells in mute.items():
        what = f"{cells} cells" if cells > 1 else "a cell"
        meaning = "is said to be gone for good" if s.is_gone else f"may serve {what} from {pool}.{s.way}"
        yield Check(name=f"router {s.router}", ok=s.is_gone, detail=f"it does not answer, and {meaning}")
    for cell, s in strays.items():
        if s.bp:
            text = f"its router shows {s.bp / 100:g} % on a target, and no migration of it is on record here: {pool} may serve it"
            yield Check(name=f"traffic of {cell}", ok=False, detail=text)


def _rehearsed(cell: CellId, drill: Drill | None, now: Instant) -> Check:
    name = f"drill of {cell}"
    if drill is None:
        return Check(name=name, ok=False, detail=f"going home was never rehearsed. Run: fleetctl fallback {cell}, then migrate it again")
    if not drill.ok:
        return Check(name=name, ok=False, detail=f"the last one failed on {drill.at:%Y-%m-%d}: {drill.detail}")
    if now - drill.at > DRILL_AGE:
        return Check(name=name, ok=False, detail=f"the last one is of {drill.at:%Y-%m-%d}, over {DRILL_AGE.days} days ago")
    return Check(name=name, ok=True, detail=f"home in {drill.ms_to_zero:.0f} ms on {drill.at:%Y-%m-%d}")


def _paid(pool: PoolId, fleet: Fleet, now: Instant) -> Iterator[Check]:
    for c in fleet.commitments:
        if c.pool == pool and c.until >= now.date().isoformat():
            yield Check(name="commitment", ok=True, detail=f"{c.count} machines stay paid for until {c.until}, used or not")
