"""Plan, view layer: why one workload moves, stays or is blocked, as text. Never I/O, never a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.domain.plan import Plan
from fleetctl.planning.explain import Explained, Look
from fleetctl.views.columns import WIDTH, clean, columns, duration, wrapped
from fleetctl.views.plan import WORD, change_text, money_text, why_word


def render_explained(plan: Plan, explained: Sequence[Explained], *, width: int = WIDTH) -> str:
    """Return the grounds per cell: outcome, route, every pool looked at, what would change it."""
    lines = [f"Plan of serial {plan.serial}, price book {clean(plan.price_book_id)}: why"]
    stages = plan.stage_of()
    for e in explained:
        lines += ["", *_cell(e, width, stages.get(e.outcome.cell, 1))]
    lines += ["", "Nothing was changed and nothing was saved. Next: fleetctl plan"]
    return "\n".join(lines) + "\n"


def _cell(e: Explained, width: int, stage: int) -> Iterator[str]:
    o = e.outcome
    word = "arrived" if o.arrived else WORD[o.kind]
    yield from wrapped(f"{clean(o.cell)}: {word}, {why_word(o.reason.code)} ({clean(o.reason.code)})", width)
    yield from wrapped(clean(o.reason.text), width, "  ")
    if stage > 1:
        yield from wrapped(f"in stage {stage}: there is room for it once what stage {stage - 1} leaves is given back", width, "  ")
    if o.cost_then is not None and o.kind == "move":
        change = change_text(o.cost_now, o.cost_then)
        yield f"  {money_text(o.cost_now)} > {money_text(o.cost_then)} USD an hour by its share of GPUs ({change})"
    if o.hours is not None and o.kind == "move":
        yield f"  {duration(o.hours * 3600)} from its first step to soak"
    yield from wrapped(_route(e), width, "  ")
    yield "  pools that it was asked for:"
    yield from columns([HEAD, *(_row(look) for look in e.looks)], right=[2, 3, 4, 5, 6, 7], indent="    ", width=width)
    if any(look.per_usd is not None for look in e.looks):
        yield "    PER USD, PER W: the same work per dollar and all-in watt, today's is 1"
    for look in e.looks:
        if look.code not in ("here", "chosen"):
            yield from wrapped(f"{clean(look.pool)}: {clean(look.text)}", width, "    ")
    for change in e.changes:
        yield from wrapped(f"to change it: {clean(change)}", width, "  ")


HEAD = ["POOL", "GPU", "FULL", "SPEED", "REPL", "USD/H", "PER USD", "PER W", "VERDICT"]


def _row(look: Look) -> list[str]:
    full = f"{look.fit.needed_gib / look.fit.available_gib:.0%}" if look.fit is not None and look.fit.available_gib else "-"
    return [
        look.pool,
        look.gpu,
        full,
        f"{look.speed.factor:.2f}" if look.speed is not None else "-",
        str(look.replicas) if look.replicas is not None else "-",
        f"{look.usd_per_hour:,.2f}" if look.usd_per_hour is not None else "-",
        f"{look.per_usd:.2f}" if look.per_usd is not None else "-",
        f"{look.per_watt:.2f}" if look.per_watt is not None else "-",
        look.code,
    ]


def _route(e: Explained) -> str:
    a = e.assessment
    kinds = dict.fromkeys(f"{look.speed.factor:.2f} {look.speed.kind}: {look.speed.source}" for look in e.looks if look.speed is not None)
    speed = f" Speed: {'; '.join(list(kinds)[:3])}." if kinds else ""
    if a is None:
        return f"Not assessed.{speed}"
    licence = f", licence {a.licence}" if a.licence else ""
    found = f", {len(a.blocking)} blocking" if a.blocking else ""
    return clean(f"Route {a.route} ({a.kind}{licence}{found}).{speed}")
