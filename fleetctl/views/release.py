"""Release, views layer: what stands in the way of giving a pool back, and the change as its owner reads it. Never I/O."""

from __future__ import annotations

from decimal import Decimal

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.pool import Pool
from fleetctl.domain.release import ReleaseView
from fleetctl.usecases.release import Verified
from fleetctl.views.columns import WIDTH, clean, counted, wrapped

_ROLES = {"source": "cells ran on it", "target": "cells were to move to it", "unused": "nothing was ever routed to it"}


def release_lines(v: ReleaseView, fleet: Fleet, usd_per_hour: Decimal | None, *, width: int = WIDTH) -> tuple[str, ...]:
    """Return the pool, what it costs, each check and the approvals.

    Args:
        usd_per_hour: of all its machines, None where no price is known.
    """
    r = v.release
    pool = fleet.pool(r.pool)
    lines = [f"pool/{r.pool}: {counted(len(r.hosts) or pool.count, 'host')} of {pool.sku} in {pool.region}", f"  {_ROLES[r.role]}"]
    if v.standing:
        lines += wrapped(f"made and never handed out, destroyed too: {', '.join(clean(n) for n in v.standing)}", width, "  ")
    if r.hosts:
        lines += wrapped(f"hosts: {', '.join(r.hosts)}", width, "  ")
    if usd_per_hour is not None:
        lines.append(f"  saves: {usd_per_hour:,.2f} USD/h by {_book(pool)} price ({usd_per_hour * 730:,.0f} USD in a month of 730 h)")
    for c in v.checks:
        first, *rest = wrapped(f"{clean(c.name)}: {clean(c.detail)}", width - 10)
        lines += [f"  {'ok' if c.ok else 'not yet':<8}{first}", *(f"          {part}" for part in rest)]
    names = ", ".join(v.approved_by) or "nobody"
    if r.role != "unused" and (v.missing or v.approved_by):
        lines.append(
            f"  {'ok' if not v.missing else 'not yet':<8}approved by {names}" + (f"; {v.missing} more needed" if v.missing else "")
        )
    return tuple(lines)


def _book(pool: Pool) -> str:
    return "list" if pool.price_usd_per_hour is None else "contract"


def handoff_text(v: ReleaseView, fleet: Fleet, usd_per_hour: Decimal | None) -> str:
    """Return the change for the pool's owner, as Markdown: what to remove, why that is safe, how it is verified, how to undo it."""
    r = v.release
    pool = fleet.pool(r.pool)
    hosts = [h for h in fleet.hosts if h.pool == r.pool]
    lines = [
        f"# Change: give back pool {clean(r.pool)}",
        "",
        f"Release {r.id} of fleet {clean(fleet.name)}, asked for by {clean(r.asked_by.name)} on {r.at:%Y-%m-%d %H:%M} UTC.",
        "fleetctl did not make these machines and does not remove them: you do.",
        "",
        "## What to remove",
        "",
        f"{counted(pool.count, 'machine')} of {clean(pool.sku)} in {clean(pool.region)} ({pool.priority}).",
        *(f"- {clean(h.id)}, {clean(h.address)}" for h in hosts),
        "",
    ]
    if usd_per_hour is not None:
        lines += [
            f"That saves {usd_per_hour:,.2f} USD an hour by {_book(pool)} price. Network cards and disks go with them; look for both.",
            "",
        ]
    lines += ["## Why it is safe", "", *(f"- {clean(c.name)}: {clean(c.detail)}" for c in v.checks)]
    lines += [f"- approved by {', '.join(clean(n) for n in v.approved_by) or 'nobody (policy asks for none)'}", ""]
    lines += [
        "## Before you do it",
        "",
        "- Lower the minimum of any autoscaler and take the machines out of any GitOps definition first, else they come back.",
        "- If Terraform made them, change its code; do not delete by hand, the state would not know.",
        "- Quota that was used for them is free afterwards; a reservation is billed until it is given back too.",
        "",
        "## Afterwards",
        "",
        f"`fleetctl release {clean(r.pool)} --handoff` looks for them in every source of the inventory and says when they are gone.",
        "",
        "## Undo",
        "",
        "Machines that were given back may not be had again. Until they are removed, `fleetctl fallback` brings traffic home to them.",
        "",
    ]
    return "\n".join(lines)


def verified_lines(v: Verified, pool: str, *, width: int = WIDTH) -> tuple[str, ...]:
    """Return whether the owner's change was seen."""
    if v.is_gone:
        return tuple(wrapped(f"pool/{pool} is gone: no source of the inventory sees its machines any more", width))
    if v.still:
        return (f"pool/{pool}: {counted(len(v.still), 'machine')} still there", *(f"  {clean(name)}" for name in v.still[:20]))
    return tuple(wrapped(f"pool/{pool}: not proven gone: {clean(v.blind)}", width))
