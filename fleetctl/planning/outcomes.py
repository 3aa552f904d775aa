"""Plan, pure layer: what is said of each cell: why it moves, stays or cannot, and what would change that. Never decides, never I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

from fleetctl.domain.evidence import LADDER_METRICS
from fleetctl.domain.fleet import Policy
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import ARRIVED, Assessment, Outcome
from fleetctl.domain.pool import Sku
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.candidates import Choice, Site
from fleetctl.planning.cost import share
from fleetctl.planning.evidence_need import LANE_LIMIT_HOURS, gating_of, hours_to_soak, phases_for
from fleetctl.planning.lanes import Asking, Given
from fleetctl.planning.placement import SPREAD

if TYPE_CHECKING:
    from fleetctl.planning.rooms import Rooms

ASK = "or pin its target: it then moves though dearer."
LICENCE_RULE = "R068"
"""The finding that a route waits for a licence."""


def before_placing(
    cell: Cell, workload: Workload, base: Outcome, site: Site, assessment: Assessment | None, *, may_return: bool
) -> Outcome | None:
    """Return the outcome of a cell that needs no placing, None for one that does."""

    def stay(code: str, text: str, change: str) -> Outcome:
        return replace(base, reason=Reason(code=code, text=text), change=change, cost_then=base.cost_now)

    if cell.lane.kind == "stay":
        text = f"Its lane is stay: {cell.lane.reason}." if cell.lane.reason else "Its lane is stay."
        return stay("lane.stay", text.replace("..", "."), "Set another lane in the fleet file.")
    if cell.target is None and site.pool.vendor == "amd" and not may_return:
        return stay("vendor.already", f"It runs on AMD already ({site.pool.id}).", "Pin a target to move it elsewhere.")
    if assessment is None:
        return stay("assess.missing", f"Workload {workload.id} has no assessment.", "Run: fleetctl assess")
    waived = {w.rule for w in assessment.waived}
    blocking = [f for f in assessment.blocking if f.severity == "blocking" and f.rule not in waived]
    if blocking:
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        first = blocking[0]
        code, change = f"assess.{first.rule}", "Choose another route, or waive the finding with a reason."
        if first.rule == LICENCE_RULE:
            code, change = "licence", "Put your licence on record: fleetctl assess --accept-licence scale=REFERENCE"
        return replace(base, kind="infeasible", reason=Reason(code=code, text=f"{first.text}{more}.".replace("..", ".")), change=change)
    if assessment.route == "stay":
        return stay("route.stay", "Its route is stay.", "Declare another route for the workload.")
    return None


def too_slow(workload: Workload, base: Outcome, lane: Given, change: str) -> Outcome:
    """Return the outcome of a cell whose evidence would take too long by its lane, with the number missing and what would fit."""
    rate, plan = workload.traffic.requests_per_s, lane.plan
    hours = hours_to_soak(lane.steps)
    took = f"{hours:,.0f} h" if isfinite(hours) else "no end"
    short = f" ({plan.binding}: {plan.needed:,} canary requests, {plan.arrive:,} arrive in that time)" if plan.needed else ""
    text = f"Own evidence at {rate:g} requests/s needs {took}, the limit is {LANE_LIMIT_HOURS:.0f} h{short}."
    planned = round(hours, 6) if isfinite(hours) else None
    return replace(base, kind="infeasible", reason=Reason(code="lane.too_slow", text=text), change=change, hours=planned)


def noisy(a: Asking, base: Outcome, policy: Policy) -> Outcome | None:
    """Return the outcome of a cell whose margins are smaller than its own A/A comparison allows, None where they are not."""
    if a.cell.lane.kind == "accepted":
        return None
    for phase in phases_for(policy, a.workload, a.cell.lane):
        for g in gating_of(phase):
            least, least_fail = a.baseline.least_margins.get(g.name, 0.0), a.baseline.least_fail_margins.get(g.name, 0.0)
            if g.margin >= least and g.fail_margin >= least_fail:
                continue
            what, is_set, wanted = ("fail_margin", g.fail_margin, least_fail) if g.margin >= least else ("margin", g.margin, least)
            shown = f"{phase.phase} at {phase.weight_bp / 100:g} %: the {g.name} {what} of {_in_unit(g.name, is_set)}"
            text = f"{shown} is below {_in_unit(g.name, wanted)}, the least that two halves of its source allow."
            change = f"Raise it in policy.steps, or calibrate again: fleetctl calibrate {a.cell.id}"
            return replace(base, kind="infeasible", reason=Reason(code="margin.below_noise", text=text), change=change)
    return None


def _in_unit(guardrail: str, margin: float) -> str:
    return f"{margin * 100:.3g} %" if guardrail in LADDER_METRICS else f"{margin * 100:.3g} points"


def moved(base: Outcome, choice: Choice, site: Site, why: str, hours: float, kw: float | None, *, there: bool = False) -> Outcome:
    """Return the outcome of a cell that goes to `site`; `kw`: all-in draw of one GPU there; `there`: an earlier plan brought it."""
    sku, then = _sku(site), cost_on(choice, site)
    gpus = f"{choice.replicas} replicas at {choice.speed.factor:.2f} x the speed ({choice.speed.kind}), " if _scaled(base, choice) else ""
    return replace(
        base,
        kind="move",
        target=site.pool.id,
        fit=choice.fit,
        cost_then=then,
        hours=round(hours, 6) if isfinite(hours) else None,
        target_replicas=choice.replicas,
        speed=choice.speed,
        kw_then=None if kw is None else round(kw * choice.gpus, 4),
        reason=Reason(code=ARRIVED, text=f"An earlier plan brought it to {site.pool.id}; its source is held until it is released.")
        if there
        else _move_reason(base.cost_now, then, f"{sku.gpu}, {gpus}{why}"),
    )


def _scaled(base: Outcome, choice: Choice) -> bool:
    return choice.replicas != base.replicas


def _move_reason(now: Money | None, then: Money | None, what: str) -> Reason:
    if now is None or then is None:
        return Reason(code="move.unpriced", text=f"{what}; the saving is unknown.")
    delta = then.amount - now.amount
    if delta > 0:
        return Reason(code="move.dearer", text=f"{what}; costs {delta:.2f} USD/h more by its share of GPUs.")
    return Reason(code="move.cheaper", text=f"{what}; saves {-delta:.2f} USD/h by its share of GPUs.")


def cost_on(choice: Choice, site: Site) -> Money | None:
    """Return what the cell costs there per hour by its share of the GPUs."""
    return share(site.price, choice.gpus, _sku(site).accelerators) if site.price is not None else None


def counted_vms(n: int, more: str = "") -> str:
    """Return "1 VM", "2 VMs", or with `more` ("more "): "1 more VM"."""
    return f"{n:,} {more}{'VM' if n == 1 else 'VMs'}"


def _sku(site: Site) -> Sku:
    if site.sku is None:
        raise ValueError(f"pool {site.pool.id} has no SKU in the catalogue, yet it is a choice")
    return site.sku


def full(base: Outcome, choice: Choice, site: Site) -> Outcome:
    """Return the outcome of a cell that its target has no room for."""
    pool = site.pool
    if site.closed is not None:
        text = f"No capacity for {pool.sku} in {pool.region}: {site.closed.reason}"
        reason, change = Reason(code="capacity.no", text=f"{text}.".replace("..", ".")), "Reserve capacity, or pin a pool of another SKU."
    else:
        what = "count" if pool.provisioned_by == "existing" else "limit"
        text = f"Pool {pool.id} is full: its {what} of {counted_vms(site.most)} leaves no room for {choice.gpus} more GPUs."
        reason, change = Reason(code="pool.limit", text=text), f"Raise the {what} of pool {pool.id}."
    return replace(base, kind="infeasible", reason=reason, change=change, fit=choice.fit)


def apart(base: Outcome, workload: Workload) -> Outcome:
    """Return the outcome of a cell whose every place is taken by one that it must stand apart from."""
    text = f"Every pool that could take it has a cell of its group {workload.apart!r}, from which it must stand apart."
    return replace(base, kind="infeasible", reason=Reason(code="apart", text=text), change="Add a pool, or loosen the workload's `apart`.")


def limited(base: Outcome, choice: Choice, site: Site, limit: str) -> Outcome:
    """Return the outcome of a pinned cell that a shared limit keeps out."""
    text = f"{choice.gpus} more GPUs on {site.pool.id} would exceed {limit} while both sides run."
    reason = Reason(code=f"limit.{limit.split(' ')[0]}", text=text)
    return replace(base, kind="infeasible", reason=reason, change=f"Raise {limit} in the fleet file's policy.", fit=choice.fit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What binds a cell to its source.

    Args:
        paid_until: last day of the commitments that pay for all VMs of the source, "" where they do not.
        some_paid: that commitments of this pool alone pay for some of its VMs, in words, "" where none does; some_until: their last day.
        is_spread: its source keeps two VMs for another cell of two replicas or more, though their load would fit in one.
        no_wait: why it waits for no release, "" where it may.
        any_cost: it was asked to move also where that is dearer, so only room can keep it.
        alone: (pool) -> VMs of its source that would go and of the pool that would come if it moved there beside the plan, and USD per
            hour more in all.
    """

    paid_until: str = ""
    some_paid: str = ""
    some_until: str = ""
    is_spread: bool = False
    no_wait: str = ""
    any_cost: bool = False
    alone: Callable[[int], tuple[int, int, float]] | None = None


FREE = Bound()


def stays(
    base: Outcome,
    choices: Sequence[Choice],
    sites: Sequence[Site],
    extra: Mapping[int, float],
    rooms: Rooms | None,
    bound: Bound = FREE,
) -> Outcome:
    """Return why a cell stays that could have moved.

    Args:
        extra: USD/h per pool of the move itself, spread over the horizon; rooms: what is left once all is released, None: not looked at.
        bound: what ties it to its source.
    """
    if base.cost_now is None:
        reason = Reason(code="price.missing", text=f"No price is known for its own pool {base.source}, so a saving cannot be told.")
        return replace(base, reason=reason, change=f"Declare price_usd_per_hour on pool {base.source}, or pin a target.")
    now = float(base.cost_now.amount)
    ranked = sorted(choices, key=lambda c: (_usd(c, sites) + extra[c.pool], c.pool))
    best = ranked[0]
    site, then = sites[best.pool], _usd(best, sites) + extra[best.pool]
    sku = _sku(site)
    base = replace(base, fit=best.fit, speed=best.speed, target_replicas=best.replicas)
    if bound.any_cost and rooms is not None:
        return _no_room(base, best, site, rooms, bound)
    if then >= now:
        text = (
            f"{sku.gpu} on {site.pool.id} would cost {then - now:,.2f} USD/h more: {best.replicas:,} replicas for {base.replicas:,} "
            f"({best.speed.factor:.2f} x the speed, {best.speed.kind}), {extra[best.pool]:,.2f} for the move itself."
        )
        return replace(
            base, reason=Reason(code="price.dearer", text=text), change=_cheaper(site, now, then, best.egress), cost_then=base.cost_now
        )
    if rooms is not None and rooms.of(best.pool) < best.padded:
        found = full(base, best, site)
        return replace(found, reason=replace(found.reason, text=f"{found.reason.text}{bound.no_wait}"))
    if bound.paid_until:
        text = (
            f"By its share of GPUs {sku.gpu} would save {now - then:.2f} USD/h, but the VMs of {base.source} are paid for until "
            f"{bound.paid_until} (commitment), used or not: it would save that from then on."
        )
        change = f"Plan again once the commitment ends ({bound.paid_until}); {ASK}"
        return replace(base, reason=Reason(code="commitment", text=text), change=change, cost_then=base.cost_now)
    limit = rooms.against(best.pool, best.padded, min(SPREAD, base.replicas)) if rooms is not None else ""
    if limit:
        what = f"{sku.gpu} on {site.pool.id} would save {now - then:.2f} USD/h"
        text = f"{what}, but {limit} is used up while both sides run.{_two(rooms, best, base)}{bound.no_wait}"
        code = f"limit.{limit.split(' ')[0]}"
        return replace(base, kind="infeasible", reason=Reason(code=code, text=text), change=f"Raise {limit} in the fleet file's policy.")
    text = f"By its share of GPUs {sku.gpu} would save {now - then:.2f} USD/h, but VMs come whole: {_whole(bound, best, base, site)}."
    text += _two(rooms, best, base)
    if bound.is_spread:
        text += f" Pool {base.source} keeps two VMs: the replicas of each of its other cells stand on two."
    change = f"More cells that may move together; {ASK}"
    if bound.some_until:
        change = f"More cells that may move together, or plan again once the commitment ends ({bound.some_until}); {ASK}"
    text += bound.some_paid + bound.no_wait
    return replace(base, reason=Reason(code="price.whole_vms", text=text), change=change, cost_then=base.cost_now)


def _no_room(base: Outcome, c: Choice, site: Site, rooms: Rooms, bound: Bound) -> Outcome:
    """Return what keeps a cell that was asked to move at any cost: the quota or the shared limit of its cheapest place."""
    if rooms.of(c.pool) < c.padded:
        found = full(base, c, site)
    elif limit := rooms.against(c.pool, c.padded, min(SPREAD, base.replicas)):
        found = limited(base, c, site, limit)
    else:
        text = f"Asked to move, but {site.pool.id} has no room for {c.gpus} more GPUs while both sides are up."
        reason = Reason(code="pool.limit", text=text)
        found = replace(base, kind="infeasible", reason=reason, change="Release what has moved, then plan again.", fit=c.fit)
    return replace(found, reason=replace(found.reason, text=f"{found.reason.text}{bound.no_wait}"))


def _whole(bound: Bound, c: Choice, base: Outcome, site: Site) -> str:
    """Return the VMs that go and come if it moved beside the plan, and what that costs where it is known to cost more."""
    gpus = f"for {c.gpus} {'GPU' if c.gpus == 1 else 'GPUs'}"
    if bound.alone is None:
        return f"moving it frees none of {base.source}, or opens one of {site.pool.id} {gpus}"
    freed, opened, more = bound.alone(c.pool)
    cost = f": {more:,.2f} USD/h more in all, the move itself included" if more >= 0.005 else ""
    return f"moving it too frees {freed or 'none'} of {base.source} and opens {opened or 'none'} of {site.pool.id} {gpus}{cost}"


def _two(rooms: Rooms | None, c: Choice, base: Outcome) -> str:
    """Return the words for a cell that needs a second VM there only so that its replicas do not stand on one."""
    more = (rooms.more(c.pool, c.padded, min(SPREAD, base.replicas)), rooms.more(c.pool, c.padded)) if rooms is not None else (0.0, 0.0)
    return " Its replicas must stand on two VMs there, since one lost VM must not be the whole cell." if more[0] > more[1] else ""


def _usd(choice: Choice, sites: Sequence[Site]) -> float:
    cost = cost_on(choice, sites[choice.pool])
    return float(cost.amount) if cost is not None else float("inf")


def even_price(price: float, now: float, then: float, egress: float) -> float:
    """Return the price of a VM below which a cell would pay there: all but egress grows with it; 0 where egress alone costs as much.

    Args:
        price: of a VM; now: USD per hour where it is; then: there, the move itself and its egress included.
    """
    return max(0.0, price * (now - egress) / (then - egress)) if then > egress else 0.0


def _cheaper(site: Site, now: float, then: float, egress: float) -> str:
    """Return below which price the cell would go there."""
    price = float(site.price.amount) if site.price is not None else 0.0
    even = even_price(price, now, then, egress)
    if even <= 0 < egress:
        return f"What crosses to another region costs {egress:.2f} USD an hour, as much as the cell does today: at no price of a VM; {ASK}"
    if even < 0.005:
        return f"It pays at no price of a VM from 0.01 USD an hour up (now {price:,.2f}); with a measured target_speed; {ASK}"
    below = f"It pays below {even:,.2f} USD per VM and hour (now {price:,.2f}), the move itself included"
    return f"{below}; or with a measured target_speed; {ASK}"
