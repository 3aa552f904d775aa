"""Plan, pure layer: why a plan does what it does with one workload: every pool that was looked at, and what would change it. Never I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor

from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Assessment, Fit, Outcome, Speed
from fleetctl.errors import UsageError
from fleetctl.planning.assemble import Asked
from fleetctl.planning.candidates import Choice, Site
from fleetctl.planning.make_plan import Worked
from fleetctl.planning.outcomes import cost_on, counted_vms, even_price
from fleetctl.planning.placement import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One pool as a place for one cell.

    Args:
        code: "chosen", "here" (it runs there), or what speaks against it; text: the same in words.
        replicas, gpus: on it; usd_per_hour: by its share of GPUs; move_usd_per_hour: of the move itself, spread over the horizon.
        per_usd, per_watt: the same work for less: today's cost, or all-in draw, over the one there; None where one is not known.
    """

    pool: PoolId
    gpu: str
    region: str
    code: str
    text: str
    fit: Fit | None = None
    speed: Speed | None = None
    replicas: int | None = None
    gpus: int | None = None
    usd_per_hour: Decimal | None = None
    move_usd_per_hour: float | None = None
    per_usd: float | None = None
    per_watt: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One cell's outcome with its grounds; changes: what would change it, nearest first."""

    outcome: Outcome
    assessment: Assessment | None
    looks: tuple[Look, ...]
    changes: tuple[str, ...]


def explain(worked: Worked, name: str) -> tuple[Explained, ...]:
    """Return the grounds for each cell of a workload, or for one cell.

    Raises:
        UsageError: plan.unknown_workload.
    """
    outcomes = {o.cell: o for o in worked.plan.outcomes}
    mine = [(i, a) for i, a in enumerate(worked.asked) if name in (a.cell.id, a.workload.id)]
    if not mine:
        known = ", ".join(sorted(w.id for w in worked.fleet.workloads)[:8])
        raise UsageError("plan.unknown_workload", f"no workload or cell is named {name!r}.", hint=f"Workloads begin with {known}")
    return tuple(_explained(worked, i, a, outcomes[a.cell.id]) for i, a in mine)


def _explained(worked: Worked, row: int, a: Asked, o: Outcome) -> Explained:
    index = {s.pool.id: i for i, s in enumerate(worked.sites)}
    choices, refusals = worked.candidates.look(a.cell, a.workload)
    refused = iter(refusals)
    by_pool = {c.pool: c for c in choices}
    looks = [_here(worked, index[a.cell.source], a, o)]
    for q in worked.candidates.pools(a.cell):
        site = worked.sites[q]
        if q in by_pool:
            looks.append(_choice(worked, row, site, by_pool[q], o))
        else:
            looks.append(_refusal(site, next(refused)))
    best = min(choices, key=lambda c: _total(worked, row, c), default=None)
    changes = list(_changes(worked, row, best, o)) if best is not None and o.kind != "move" else []
    if o.change:
        changes.insert(0, o.change)
    return Explained(
        outcome=o,
        assessment=worked.assessments.get(a.workload.id),
        looks=tuple(looks),
        changes=tuple(dict.fromkeys(changes)),
    )


def _here(worked: Worked, q: int, a: Asked, o: Outcome) -> Look:
    site = worked.sites[q]
    return Look(
        pool=site.pool.id,
        gpu=_gpu(site),
        region=site.pool.region,
        code="here",
        text="it runs here now",
        replicas=a.workload.replicas,
        gpus=a.workload.replicas * a.workload.accelerators_per_replica,
        usd_per_hour=o.cost_now.amount if o.cost_now is not None else None,
        per_usd=1.0 if o.cost_now is not None else None,
        per_watt=1.0 if o.kw_now is not None else None,
    )


def _refusal(site: Site, refusal: Refusal) -> Look:
    return Look(
        pool=site.pool.id,
        gpu=_gpu(site),
        region=site.pool.region,
        code=refusal.reason.code,
        text=f"{refusal.reason.text} {refusal.change}",
        fit=refusal.fit,
    )


def _choice(worked: Worked, row: int, site: Site, c: Choice, o: Outcome) -> Look:
    usd = cost_on(c, site)
    code, text = _verdict(worked, row, site, c, o)
    kw = worked.kw[c.pool]
    draw = kw * c.gpus if kw else None
    return Look(
        pool=site.pool.id,
        gpu=_gpu(site),
        region=site.pool.region,
        code=code,
        text=text,
        fit=c.fit,
        speed=c.speed,
        replicas=c.replicas,
        gpus=c.gpus,
        usd_per_hour=usd.amount if usd is not None else None,
        move_usd_per_hour=round(_extra(worked, row, c), 4),
        per_usd=round(float(o.cost_now.amount / usd.amount), 4) if usd is not None and usd.amount and o.cost_now is not None else None,
        per_watt=round(o.kw_now / draw, 4) if draw and o.kw_now is not None else None,
    )


def _verdict(worked: Worked, row: int, site: Site, c: Choice, o: Outcome) -> tuple[str, str]:
    """Return what speaks for or against a pool that could take the cell."""
    name = site.pool.id
    if o.kind == "move" and o.target == name:
        return ("arrived", "an earlier plan brought it here") if o.arrived else ("chosen", o.reason.text)
    if o.kind == "infeasible" and not o.reason.code.startswith(("pool.", "limit.", "capacity.")):
        return o.reason.code, "it would fit, but the cell may not move: see its reason"
    total = _total(worked, row, c)
    if o.kind != "move" and not worked.any_cost and o.cost_now is not None and total >= float(o.cost_now.amount):
        return "price.dearer", f"{total - float(o.cost_now.amount):,.2f} USD/h more than today, the move itself included"
    rooms = worked.placed.rooms
    if rooms is not None and rooms.of(c.pool) < c.padded:
        more = ceil((c.padded - rooms.of(c.pool)) / site.size)
        return "pool.limit", f"full while both sides are up: {counted_vms(more, 'more ')} would do ({site.most} may exist)"
    limit = rooms.against(c.pool, c.padded) if rooms is not None and o.kind != "move" else ""
    if limit:
        return "limit", f"{limit} is used up while both sides are up"
    if o.kind == "move":
        taken = float(o.cost_then.amount) if o.cost_then is not None else 0.0
        share = _usd(c, site)
        if share > taken:
            return "price.other", f"{share - taken:,.2f} USD/h more than on {o.target}"
        return "price.whole_vms", f"not dearer by its share, but in whole VMs the fleet costs less with it on {o.target}"
    if o.reason.code != "price.whole_vms":
        return o.reason.code, "cheaper by its share of GPUs: see its reason"
    return o.reason.code, "cheaper by its share of GPUs, but it would free no whole VM, or open one"


def _changes(worked: Worked, row: int, c: Choice, o: Outcome) -> Iterator[str]:
    """Yield by how much one figure alone would have to change, for the cheapest pool that could take the cell."""
    site = worked.sites[c.pool]
    if o.cost_now is None or site.price is None or site.sku is None:
        return
    now, total, share = float(o.cost_now.amount), _total(worked, row, c), _usd(c, site)
    if total >= now > 0 and share > 0 and not worked.any_cost:
        even = even_price(float(site.price.amount), now, total, c.egress)
        if even < 0.005:
            return
        yield f"Price: {site.pool.id} pays below {even:,.2f} USD per VM and hour (now {site.price.amount:,.2f}), the move itself included."
        each = (total - c.egress) / c.replicas
        most = floor((now - c.egress) / each - 1e-9)
        if most >= 1:
            needed = ceil(100 * o.replicas / most - 1e-9) / 100  # what is said, to two digits, must do
            yield f"Speed: {site.sku.gpu} would have to do {needed:.2f} x of today's GPUs (now {c.speed.factor:.2f}, {c.speed.kind})."
    elif worked.placed.rooms is not None and worked.placed.rooms.of(c.pool) < c.padded:
        more = ceil((c.padded - worked.placed.rooms.of(c.pool)) / site.size)
        yield f"Quota: {counted_vms(more, 'more ')} of {site.pool.id} ({site.most} may exist)."


def _extra(worked: Worked, row: int, c: Choice) -> float:
    return float(worked.placed.extra[row, c.pool]) if worked.placed.extra is not None else 0.0


def _total(worked: Worked, row: int, c: Choice) -> float:
    return _usd(c, worked.sites[c.pool]) + _extra(worked, row, c)


def _usd(c: Choice, site: Site) -> float:
    cost = cost_on(c, site)
    return float(cost.amount) if cost is not None else float("inf")


def _gpu(site: Site) -> str:
    return site.sku.gpu if site.sku is not None else "?"
