"""Plan, view layer: a plan as text for the person who approves it, cash first. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal

from fleetctl.domain.canonical import digest
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.plan import Outcome, Plan
from fleetctl.domain.units import Money
from fleetctl.views.columns import WIDTH, clean, columns, counted, wrapped
from fleetctl.views.plan_calendar import calendar_lines, fault_lines
from fleetctl.views.plan_evidence import evidence_lines, lane_lines

MOST_ROWS = 20
"""Cells shown per kind, and waves shown, before the rest is summed up."""
WORD = {"move": "move", "stay": "stay", "infeasible": "blocked"}
WHY = {
    "move.cheaper": "cheaper",
    "move.dearer": "asked for, dearer",
    "move.whole_vms": "VMs come whole",
    "move.unpriced": "asked for, no source price",
    "move.arrived": "an earlier plan",
    "assess.": "not portable",
    "licence": "licence",
    "route.": "its route",
    "lane.too_slow": "too little traffic for evidence",
    "lane.": "its lane",
    "vendor.already": "on AMD already",
    "catalog.": "unknown VM size",
    "catalog.announced": "announced, not measured",
    "residency": "residency",
    "pool.none": "no pool",
    "pool.region": "residency",
    "pool.limit": "quota",
    "capacity.": "no capacity",
    "path.": "network path",
    "ends.": "capacity that ends",
    "price.missing": "no price",
    "price.dearer": "price book",
    "price.whole_vms": "VMs come whole",
    "fit": "memory fit",
    "slo": "SLO curve",
    "limit.power_kw": "power",
    "limit.budget": "budget",
    "limit.target": "cap on AMD",
    "apart": "must stand apart",
    "commitment": "paid for already",
    "cooling": "cooling",
}
"""What binds, in a word, by how the reason's code begins; the longest beginning counts."""
CASH = {"list": "list", "contract": "contract", "commitments": "after commitments"}


def render_plan(plan: Plan, fleet: Fleet, *, width: int = WIDTH, most: int = MOST_ROWS, wide: bool = False, saved: bool = True) -> str:
    """Return the plan as plain text of at most `width` columns.

    In this order: cash; what moves, stays, is blocked; cross-cloud paths; calendar and double-run cost; evidence lane and time from a
    fault to no traffic; who must approve; next step.

    Args:
        most: rows per list; wide: memory fit, every check and the plan's identity too; saved: False after a dry run.
    """
    made = plan.made_at.strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"Plan {plan.id} for fleet {clean(fleet.name)} (serial {plan.serial}), made {made}"]
    if wide:
        lines += _identity(plan, width)
    detail = (_fit,) if wide else ()
    last = (_checks, _approval)
    for section in (_cash, _outcomes, _cohorts, *detail, _paths, calendar_lines, evidence_lines, lane_lines, fault_lines, *last):
        found = list(section(plan, fleet, width, most if not wide else max(most, len(plan.outcomes))))
        lines.extend(["", *found] if found else ())
    if wide:
        lines += ["", *_every_check(plan, width)]
    lines += ["", *wrapped(_end(plan, saved=saved), width)]
    text = "\n".join(lines) + "\n"
    return text if saved else text.replace(f"fleetctl show {plan.id} -o wide", "fleetctl plan --dry-run -o wide")


def _end(plan: Plan, *, saved: bool) -> str:
    if plan.is_stuck:
        return (
            f"Nothing was changed{'' if saved else ', nothing was saved'}. Next: change one of the lines that conflict, then fleetctl plan"
        )
    if not saved:
        return "Nothing was changed, nothing was saved. Next: fleetctl plan"
    return f"Nothing was changed. Next: fleetctl approve {plan.id}"


def _identity(plan: Plan, width: int) -> Iterator[str]:
    yield from columns(
        [
            ["sha256", digest(plan)],
            ["format", f"{plan.format_version}, lineage {plan.lineage}, serial {plan.serial}"],
            ["catalogue", plan.catalog_id],
            ["prices", plan.price_book_id],
        ],
        indent="  ",
        width=width,
    )


def money_text(money: Money | None) -> str:
    """Return an amount with thousands and cents, "unknown" for none."""
    return "unknown" if money is None else f"{money.amount:,.2f}"


def change_text(now: Money | None, then: Money | None) -> str:
    """Return what an amount changes by, with its sign; "unknown" where one is."""
    return "unknown" if now is None or then is None else f"{then.amount - now.amount:+,.2f}"


def _share(now: Money | None, then: Money | None) -> str:
    return f"{(then.amount - now.amount) / now.amount:+.0%}" if now is not None and then is not None and now.amount else ""


def _cash(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del most
    yield f"Cash ({plan.cost_now.currency} an hour; price book {clean(plan.price_book_id)})"
    lines = [(CASH.get(c.name, c.name), c.now, c.then) for c in plan.cash] or [("all pools", plan.cost_now, plan.cost_then)]
    rows = [["", "NOW", "THEN", "CHANGE", ""]]
    rows += [[name, money_text(now), money_text(then), change_text(now, then), _share(now, then)] for name, now, then in lines]
    yield from columns(rows, right=[1, 2, 3, 4], indent="  ", width=width)
    yield from (line for text in _proofs(plan) for line in wrapped(text, width, "  "))
    sources = {o.source for o in plan.outcomes if o.kind == "move"}
    for c in fleet.commitments:
        if c.pool in sources and c.until >= plan.made_at.date().isoformat():
            yield from wrapped(
                f"{counted(c.count, 'VM')} of {clean(c.pool)} still paid for until {clean(c.until)} (commitment)", width, "  "
            )
    for c in fleet.commitments:
        if c.scope is not None and c.until >= plan.made_at.date().isoformat():
            what = f"{money_text(c.hourly)} USD an hour" if c.discount is not None else counted(c.count, "VM")
            yield from wrapped(
                f"{clean(c.name) or 'commitment'}: {what} paid until {clean(c.until)}, wherever its scope is used", width, "  "
            )
    if plan.certificate is not None and plan.certificate.covered is not None:
        last = (plan.certificate, *plan.certificate.later)[-1]
        yield from wrapped(
            f"of THEN, {money_text(last.covered)} is paid for by those commitments; the bounds above are without it", width, "  "
        )
    said = [c.detail for c in plan.checks if (c.name == "prices" and not c.ok) or c.name == "asked"]
    yield from (line for text in said for line in wrapped(clean(text), width, "  "))
    yield from wrapped(_work(plan), width, "  ")


def _proofs(plan: Plan) -> Iterator[str]:
    """Yield what the plan costs with its moves, and below what no plan can come; one line per stage."""
    c = plan.certificate
    if c is None:
        return
    for number, proof in enumerate((c, *c.later), 1):
        head = f"after stage {number}: " if c.later else "in all "
        bill = f"{proof.cost.amount - proof.moving.amount:,.2f} and {money_text(proof.moving)} for the moves themselves"
        cost = f"{head}{bill} (spread over {proof.horizon_hours / 24:.3g} d) = {money_text(proof.cost)}; " if proof.moving.amount else ""
        least = "with all of today's VMs held, no plan" if c.later else "no plan"
        least = f"on what stage {number - 1} releases, none" if number > 1 else f"{least} costs"
        yield f"{cost}{least} less than {money_text(proof.bound)} an hour (proven gap {proof.gap_pct:.2f} %)"
        if proof.apart is not None:
            yield f"the bound does not know of `apart`: keeping groups apart makes {money_text(proof.apart)} an hour of that gap"
    waits = dict.fromkeys(name for d in plan.calendar.waves for name in d.waits) if plan.calendar is not None else {}
    if waits:
        yield f"the bounds leave freeze windows out ({', '.join(clean(n) for n in waits)}): what both sides cost meanwhile comes on top"


def _work(plan: Plan) -> str:
    """Return what the moving cells do per dollar and per watt against today: the same work, so the inverse of cost and draw."""
    moves = [o for o in plan.outcomes if o.kind == "move"]
    said = []
    cost = [(o.cost_now.amount, o.cost_then.amount) for o in moves if o.cost_now is not None and o.cost_then is not None]
    if cost and sum(then for _, then in cost):
        said.append(f"{sum(now for now, _ in cost) / sum(then for _, then in cost):.2f} x per dollar")
    draw = [(o.kw_now, o.kw_then) for o in moves if o.kw_now is not None and o.kw_then is not None]
    if draw and sum(then for _, then in draw):
        said.append(f"{sum(now for now, _ in draw) / sum(then for _, then in draw):.2f} x per watt (all-in, estimated)")
    if not said:
        return ""
    kinds = Counter(o.speed.kind for o in moves if o.speed is not None)
    how = ", ".join(f"{kind} for {counted(n, 'cell')}" for kind, n in kinds.most_common())
    return f"the same work of the moving cells: {', '.join(said)}; speed {how}"


def _outcomes(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet
    moves = [o for o in plan.outcomes if o.kind == "move" and not o.arrived]
    there = [o for o in plan.outcomes if o.arrived]
    by_kind = Counter(o.kind for o in plan.outcomes)
    arrived = f", {len(there):,} arrived" if there else ""
    yield (
        f"{counted(len(plan.outcomes), 'cell')}: {len(moves):,} move, {by_kind['stay']:,} stay, {by_kind['infeasible']:,} blocked{arrived}"
    )
    if moves:
        head = ["CELL", "FROM", "TO", "REPLICAS", f"{plan.cost_now.currency}/H", ""]
        note = {"move.dearer": "dearer", "move.unpriced": "no source price", "move.whole_vms": "frees VMs"}
        stages = plan.stage_of()
        rows = [
            [o.cell, o.source, o.target, _replicas(o), change_text(o.cost_now, o.cost_then), _note(o, note, stages.get(o.cell, 1))]
            for o in moves[:most]
        ]
        yield from columns([head, *rows], right=[3, 4], indent="  ", width=width, keep=[0])
        yield from _rest(len(moves) - most, plan)
        yield from wrapped(_sum(plan, moves), width, "  ")
    if there:
        names = ", ".join(f"{clean(o.cell)} ({clean(o.target)})" for o in there[:most])
        more = f" and {len(there) - most:,} more" if len(there) > most else ""
        yield from wrapped(f"arrived by an earlier plan, the source held until it is released: {names}{more}", width, "  ")
    others = [o for o in plan.outcomes if o.kind != "move"]
    for (kind, code), count in Counter((o.kind, o.reason.code) for o in others).most_common():
        same = [o for o in others if (o.kind, o.reason.code) == (kind, code)]
        yield f"  {WORD[kind]}: {counted(count, 'cell')}, {why_word(code)} ({clean(code)})"
        yield from _reasons(same, width, max(1, most // 4), plan)


def _sum(plan: Plan, moves: list[Outcome]) -> str:
    """Return how the rows add up to the change of the bill; "" where a price is unknown."""
    pairs = [(o.cost_now, o.cost_then) for o in moves]
    known = [then.amount - now.amount for now, then in pairs if now is not None and then is not None]
    if len(known) < len(pairs):
        return ""
    total, shares = plan.cost_then.amount - plan.cost_now.amount, sum(known, Decimal(0))
    return added_up(shares, total, ", and by cells that arrived before" if any(o.arrived for o in plan.outcomes) else "")


def added_up(shares: Decimal, total: Decimal, also: str = "") -> str:
    """Return how what cells change by their share of GPUs becomes the change of the bill, USD per hour; also: what else is in the rest."""
    return f"{shares:+,.2f} by their share of GPUs, {total - shares:+,.2f} since VMs come and go whole{also}: {total:+,.2f} an hour in all"


def _note(o: Outcome, words: Mapping[str, str], stage: int) -> str:
    return f"stage {stage}" if stage > 1 else words.get(o.reason.code, "")


def _replicas(o: Outcome) -> str:
    then = o.target_replicas or o.replicas
    return str(then) if then == o.replicas else f"{o.replicas} > {then}"


def why_word(code: str) -> str:
    """Return in a word what binds, by a reason's code."""
    found = max((begin for begin in WHY if code.startswith(begin)), key=len, default="")
    return WHY[found] if found else code


def _reasons(same: list[Outcome], width: int, most: int, plan: Plan) -> Iterator[str]:
    """Yield the reasons of cells with the same code, equal ones once, and once what would change them."""
    by_text: dict[str, list[Outcome]] = {}
    by_change: dict[str, list[Outcome]] = {}
    for o in same:
        by_text.setdefault(o.reason.text, []).append(o)
        by_change.setdefault(o.change or "", []).append(o)
    if len(by_text) > 2 * most and 2 * len(by_change) <= len(by_text):
        yield from _by_change(by_change, width, most, plan)
        return
    shown = 0
    for text, cells in list(by_text.items())[:most]:
        names = ", ".join(clean(o.cell) for o in cells[:most]) + (f" and {len(cells) - most:,} more" if len(cells) > most else "")
        yield from wrapped(f"{names}: {clean(text)}", width, "    ")
        shown += len(cells)
    yield from _rest(len(same) - shown, plan, "    ")
    changes = dict.fromkeys(o.change for o in same if o.change)
    if changes:
        first = next(iter(changes))
        more = f" (others: fleetctl plan --explain {clean(same[-1].workload)})" if len(changes) > 1 else ""
        yield from wrapped(f"to change it: {clean(first)}{more}", width, "      ")


def _by_change(by_change: dict[str, list[Outcome]], width: int, most: int, plan: Plan) -> Iterator[str]:
    """Yield many cells by what would change them, those that most cells wait for first."""
    ranked = sorted(by_change.items(), key=lambda item: (-len(item[1]), item[0]))
    for change, cells in ranked[:most]:
        names = ", ".join(clean(o.cell) for o in cells[:2])
        yield from wrapped(f"{counted(len(cells), 'cell')}, such as {names}; to change it: {clean(change)}", width, "    ")
    yield from _rest(sum(len(cells) for _, cells in ranked[most:]), plan, "    ")


def _rest(more: int, plan: Plan, indent: str = "  ") -> Iterator[str]:
    if more > 0:
        yield f"{indent}and {more:,} more: fleetctl show {plan.id} -o wide"


def _fit(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet
    known = [o for o in plan.outcomes if o.fit is not None]
    yield "Fit (GiB per replica: weights, KV cache, runtime; estimates are named)"
    if not known:
        yield "  nothing was placed"
        return
    known.sort(key=lambda o: (-_fill(o), o.cell))
    rows = [
        [o.cell, f"{o.fit.needed_gib:,.1f}", f"{o.fit.available_gib:,.1f}", f"{_fill(o):.0%}", o.fit.estimated]
        for o in known[:most]
        if o.fit
    ]
    yield from columns([["CELL", "NEEDS", "HAS", "FULL", "ESTIMATED"], *rows], right=[1, 2, 3], indent="  ", width=width)
    yield from _rest(len(known) - most, plan)


def _fill(outcome: Outcome) -> float:
    return outcome.fit.needed_gib / outcome.fit.available_gib if outcome.fit is not None and outcome.fit.available_gib else 0.0


def _paths(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet
    if not plan.paths:
        yield "Cross-cloud paths: none, no cell leaves its region"
        return
    yield "Paths between regions and clouds"
    head = ["FROM", "TO", "CELLS", "ROUND TRIP", "PATH", f"EGRESS {plan.cost_now.currency}/H"]
    rows = [
        [
            f"{p.clouds[0]} {p.regions[0]}",
            f"{p.clouds[1]} {p.regions[1]}",
            f"{p.cells:,}",
            "not declared" if p.round_trip_ms is None else f"{p.round_trip_ms:g} ms",
            "-" if p.is_private is None else "private" if p.is_private else "public",
            "not declared" if p.egress is None else money_text(p.egress),
        ]
        for p in plan.paths[:most]
    ]
    yield from columns([head, *rows], right=[2, 3, 5], indent="  ", width=width)


def _approval(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del plan, most
    wanted = fleet.policy.approvals
    yield "Who must approve"
    if wanted == 0:
        yield from wrapped("nobody: the policy asks for no approvals, so the newest plan counts as approved", width, "  ")
    else:
        who = "1 person" if wanted == 1 else f"{wanted} different people"
        yield from wrapped(f"{who}, of this plan and no other; coming home never needs approval", width, "  ")


def _cohorts(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield which requests go first, and where a split stays."""
    found = [part for c in plan.checks if c.name == "cohorts" for part in c.detail.split("; ")]
    if found:
        yield from wrapped(f"Cohorts: {clean('; '.join(found))}", width, "  ")


def _checks(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield how many checks hold, and in full those that do not."""
    del fleet, most
    bad = [c for c in plan.checks if not c.ok]
    if not bad:
        yield f"Checks: all {len(plan.checks)} met (fleetctl show {plan.id} -o wide)"
        return
    yield f"Checks: {len(bad)} of {len(plan.checks)} not met"
    for check in bad:
        yield from _check("FAIL", check.name, check.detail, width)


def _every_check(plan: Plan, width: int) -> Iterator[str]:
    yield "Every check"
    for check in plan.checks:
        yield from _check("ok" if check.ok else "FAIL", check.name, check.detail, width)


def _check(word: str, name: str, detail: str, width: int) -> Iterator[str]:
    head = f"  {word:<4}  {name:<13}"
    first, *rest = wrapped(clean(detail), width, " " * len(head)) or [""]
    yield head + first.strip()
    yield from rest
