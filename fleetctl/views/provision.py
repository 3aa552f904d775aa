"""Provision and capacity, views layer: plans of pools, what became of them, and where machines may be had. Never I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal

from fleetctl.domain.capacity import ProvisionIntent
from fleetctl.domain.people import Diagnostic, Signal
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import CapacityVerdict, PriceFrom, ProvisionPlan, ResourceChange
from fleetctl.domain.units import Instant
from fleetctl.rollout.notices import notice_text
from fleetctl.usecases.capacity import ProvisionOutcome
from fleetctl.usecases.oracle import PoolCapacity
from fleetctl.usecases.provision_causes import kind_of
from fleetctl.views.columns import WIDTH, counted, wrapped
from fleetctl.views.output import Column, Table, clean
from fleetctl.views.progress import without_modules

_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_WORDS = {"create": "to make", "update": "to change", "delete": "to remove"}
_BILLED = {"azurerm_capacity_reservation": "billed from its making, used or not"}
"""What else costs as much as a machine and is never summed up.
Source: Microsoft Learn "On-demand capacity reservation"; read 2026-11-30."""
_MACHINES = ("azurerm_linux_virtual_machine", "aws_instance", "aws_autoscaling_group", "terraform_data")
_KEY = re.compile(r'\["([^"]+)"\]\Z')
_MOST_HOSTS = 8
CAPACITY_COLUMNS = (
    Column(title="POOL"),
    Column(title="SIZE", shrink=2, middle=True),
    Column(title="REGION"),
    Column(title="ZONE"),
    Column(title="TERMS"),
    Column(title="MORE", right=True),
    Column(title="ANSWER"),
    Column(title="WHY", shrink=1),
)
_LEGEND = "yes: reserved places are free. no: trying is known to be vain. unknown: only a try can tell (no cloud says what it has left)."


def plan_lines(
    spec: PoolSpec, shown: ProvisionPlan, usd_per_hour: Decimal | None, *, by: PriceFrom = "list", width: int = WIDTH
) -> tuple[str, ...]:
    """Return a Terraform plan as a person reads it: where, machines first, the rest summed up, the cost.

    Args:
        by: whose price the cost is by; width: of the terminal, columns.
    """
    where = f"{spec.region}, zone {spec.zone}" if spec.zone else spec.region
    lines = [f"pool/{spec.pool}: {spec.count} x {spec.sku}", f"  in {where}, {_terms(spec.priority)}"]
    lines += [f"  {line}" for line in _changes(shown)]
    if shown.is_empty and shown.outputs_change:
        lines.append("  ~ which hosts these are, as the cloud has them now: written down")
    if not shown.is_empty:
        lines.append(f"  cost: {_cost(usd_per_hour, spec.priority, by)}")
        lines.append(f"  by: stack {shown.stack}, {shown.tool}, plan {shown.digest[:16]}...")
    return tuple(_fitted(lines, width))


def _changes(shown: ProvisionPlan) -> Iterator[str]:
    rest: Counter[tuple[str, str]] = Counter()
    for c in shown.changes:
        signs = "/".join(_SIGNS[a] for a in c.actions if a in _SIGNS)
        if not signs:
            continue
        if c.type in _MACHINES or c.type in _BILLED or "delete" in c.actions:  # what is taken away is never summed up
            yield f"{signs} {_name(c)}  {c.type}" + (f" ({_BILLED[c.type]})" if c.type in _BILLED and "create" in c.actions else "")
        else:
            rest["/".join(_WORDS[a] for a in c.actions if a in _WORDS), c.type] += 1
    for words in sorted({w for w, _ in rest}):
        kinds = {k: n for (w, k), n in rest.items() if w == words}
        number = sum(kinds.values())
        named = ", ".join(_plain(k) for k in sorted(kinds, key=lambda k: (-kinds[k], k))[:4])
        yield f"and {counted(number, 'smaller resource')} {words}: {named}{', ...' if len(kinds) > 4 else ''}"


def _name(c: ResourceChange) -> str:
    found = _KEY.search(c.address)
    return found[1] if found else c.address.rsplit(".", 1)[-1].split("[", 1)[0]


def _plain(kind: str) -> str:
    """Return a resource type in words: "network interface"."""
    return kind.split("_", 1)[-1].replace("_", " ")


def _terms(priority: str) -> str:
    return "spot" if priority == "spot" else "on demand"


def _cost(usd_per_hour: Decimal | None, priority: str, by: PriceFrom) -> str:
    if usd_per_hour == 0:
        return "no change"
    if usd_per_hour is None:
        return "not known: spot has no list price" if priority == "spot" else "not known: no list price for this size here"
    sign = "+" if usd_per_hour >= 0 else "-"
    month = abs(usd_per_hour) * 730
    return f"{sign}{abs(usd_per_hour):,.2f} USD/h by {by} price ({sign}{month:,.0f} USD in a month of 730 h)"


def outcome_lines(o: ProvisionOutcome, *, with_plan: bool, by: PriceFrom = "list", width: int = WIDTH) -> tuple[str, ...]:
    """Return what became of a pool.

    Args:
        with_plan: the plan was not printed before; by: whose price the cost is by; width: of the terminal, columns.
    """
    lines = list(plan_lines(o.spec, o.shown, o.usd_per_hour, by=by, width=width)) if with_plan else [f"pool/{o.spec.pool}"]
    more = [f"  {f.severity}: {f.path}: {f.text}" for f in o.findings]
    more += [f"  orphan: {kind_of(x)} {x.name} ({x.state}), in no state" for x in o.orphans]
    more += [f"  removed: {kind_of(x)} {x.name} ({x.state}), left over and in no state" for x in o.removed]
    more += [f"  refused: {a.place.text}: {a.code}: {a.text}" for a in o.attempts if a.code]
    if o.done is not None:
        made = f"{o.done.added} added, {o.done.changed} changed, {o.done.destroyed} destroyed"
        more.append(f"  applied in {o.done.seconds:.1f} s: {made}" + (f", at {o.place.text}" if o.place is not None and o.attempts else ""))
    elif o.shown.is_empty and not o.shown.outputs_change and not o.findings:
        more.append("  no changes: it is as planned")
    if o.hosts:
        names = [h.id for h in o.hosts[:_MOST_HOSTS]]
        rest = len(o.hosts) - len(names)
        more.append(f"  hosts: {', '.join(names)}" + (f" and {rest} more" if rest else ""))
    return (*lines, *_fitted(more, width))


def outcome_row(
    o: ProvisionOutcome, drift: Sequence[Diagnostic], notices: Sequence[Signal] = (), *, by: PriceFrom = "list"
) -> dict[str, object]:
    """Return the same for programs: whole addresses, ids and reasons."""
    return {
        "pool": o.spec.pool,
        "changes": o.shown.changes,
        "digest": o.shown.digest,
        "done": o.done,
        "hosts": o.hosts,
        "place": o.place,
        "attempts": o.attempts,
        "orphans": o.orphans,
        "removed": o.removed,
        "usd_per_hour": o.usd_per_hour,
        "price_from": by,
        "findings": o.findings,
        "drift": tuple(drift),
        "notices": tuple(notices),
    }


def unfinished_lines(found: Sequence[ProvisionIntent], *, width: int = WIDTH) -> tuple[str, ...]:
    """Return the tries that did not end of pools that no plan makes any more, one paragraph each."""
    lines = [
        f"pool/{i.pool}: a try of {i.at:%Y-%m-%d %H:%M} UTC at {i.place.text} did not end, and the plan makes the pool no more; machines "
        f"of it may stand and cost. Run: fleetctl release {i.pool}, or look for the tag fleetctl-intent={i.tag}"
        for i in found
    ]
    return tuple(_fitted(lines, width))


def drift_lines(found: Sequence[Diagnostic], *, width: int = WIDTH) -> tuple[str, ...]:
    """Return drift, one line each."""
    return tuple(_fitted([f"  drift: {without_modules(d.text)}" for d in found], width))


def notice_lines(found: Sequence[Signal], now: Instant, *, width: int = WIDTH) -> tuple[str, ...]:
    """Return what a pool's clouds say of the end of its machines, one line each; a source that is silent too."""
    silent = "does not answer: nobody tells of the end of this machine"
    lines = (f"  notice: {s.subject} {silent}" if s.kind == "notices.silent" else f"  notice: {notice_text(s, now)}" for s in found)
    return tuple(_fitted(list(lines), width))


def _fitted(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield each line within the width; what goes on stands two columns further in."""
    for line in lines:
        text = clean(line)
        indent = " " * (len(text) - len(text.lstrip()))
        if len(text) <= width:
            yield text
            continue
        first, *rest = wrapped(text, width - len(indent) - 2)
        yield f"{indent}{first}"
        yield from (f"{indent}  {part}" for part in rest)


def capacity_table(rows: Sequence[PoolCapacity]) -> Table:
    """Return where machines may be had, a line per place, for `-o wide`; "unknown" is an answer."""
    cells = tuple(
        (
            str(row.pool.id),
            v.sku,
            v.region,
            v.zone or "-",
            _terms(v.priority),
            str(v.count),
            v.kind,
            "; ".join(v.reasons) or v.reason,
        )
        for row in rows
        for v in row.verdicts
    )
    return Table(columns=CAPACITY_COLUMNS, rows=cells, foot=("", _LEGEND), empty="No pool of this fleet is made by fleetctl.")


def capacity_text(rows: Sequence[PoolCapacity], *, width: int = WIDTH) -> str:
    """Return where machines may be had, pool by pool: each place with its answer, and every reason in full under it."""
    if not rows:
        return "No pool of this fleet is made by fleetctl."
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        lines.append(f"pool/{row.pool.id}: {counted(row.count, 'more machine')} wanted, of at most {row.pool.limit}")
        for v in row.verdicts:
            lines += _verdict(v, width)
    return "\n".join([*lines, "", *wrapped(_LEGEND, width)])


def _verdict(v: CapacityVerdict, width: int) -> Iterator[str]:
    where = f"{v.region}, zone {v.zone}" if v.zone else v.region
    yield from _fitted([f"  {v.kind:<8} {v.sku} in {where}, {_terms(v.priority)}"], width)
    for reason in v.reasons or (v.reason,):
        yield from wrapped(clean(reason), width, " " * 11)
