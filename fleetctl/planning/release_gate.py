"""Release, planning layer: what must be proven before a pool may be given back. Pure; never asks a router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
) -> tuple[Check, ...]:
    """Return what must hold, with what is so now; every one must be ok.

    Args:
        rollouts: the current one of every cell that ever moved; shown: what each router sends to the target, basis points (None: silent),
            of the `strays` too.
        drills: the newest rehearsal per cell.
    """
    leaving = {c.id for c in fleet.cells if c.source == pool} | {c for c, r in rollouts.items() if r.spec.source == pool}
    coming = {c for c, r in rollouts.items() if r.spec.target == pool and c not in leaving}
    checks = [_left(pool, c, rollouts.get(c), shown.get(c)) for c in sorted(leaving)]
    checks += [_not_there(pool, c, rollouts[c], shown.get(c)) for c in sorted(coming)]
    checks += [x for c in strays(pool, fleet, rollouts) if (x := _moved_elsewhere(pool, c, shown.get(c))) is not None]
    checks += [_rehearsed(c, drills.get(c), now) for c in sorted(leaving)]
    checks += _paid(pool, fleet, now)
    return tuple(checks) or (Check(name="traffic", ok=True, detail=f"no cell was ever routed to {pool}"),)


def _left(pool: PoolId, cell: CellId, r: Rollout | None, shown_bp: int | None) -> Check:
    name = f"traffic of {cell}"
    if r is None or r.spec.source != pool:
        return Check(name=name, ok=False, detail=f"it runs on {pool} and has not moved")
    if r.ended != "complete":
        at = r.ended.replace("_", " ") or f"{r.phase} at {r.weight_bp / 100:g} %"
        return Check(name=name, ok=False, detail=f"its soak is not over: {at}")
    if shown_bp is None:
        return Check(name=name, ok=False, detail="its router does not answer, so nothing proves where it is served")
    if shown_bp != FULL_BP:
        return Check(name=name, ok=False, detail=f"its router shows {shown_bp / 100:g} % on {r.spec.target}, not 100 %")
    return Check(name=name, ok=True, detail=f"100 % on {r.spec.target}, soak is over")


def _not_there(pool: PoolId, cell: CellId, r: Rollout, shown_bp: int | None) -> Check:
    name = f"traffic of {cell}"
    if shown_bp is None:
        return Check(name=name, ok=False, detail="its router does not answer, so nothing proves where it is served")
    if shown_bp > 0:
        return Check(name=name, ok=False, detail=f"{pool} serves {shown_bp / 100:g} % of it")
    if not r.ended:
        return Check(name=name, ok=False, detail=f"it is on its way to {pool} ({r.phase}). Run: fleetctl abort {cell}")
    return Check(name=name, ok=True, detail=f"0 % on {pool}: {r.ended.replace('_', ' ')}")


def _moved_elsewhere(pool: PoolId, cell: CellId, shown_bp: int | None) -> Check | None:
    if not shown_bp:
        return None
    text = f"its router shows {shown_bp / 100:g} % on a target, and no migration of it is on record here: {pool} may serve it"
    return Check(name=f"traffic of {cell}", ok=False, detail=text)


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
