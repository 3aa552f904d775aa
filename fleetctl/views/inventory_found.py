"""Inventory, views layer: pools, machines, engines, quotas and changes as tables; everything about one thing as text. Never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetctl.domain.merge import Conflict, Thing
from fleetctl.domain.people import Gap
from fleetctl.views.output import Column, Table, clean, shorten

if TYPE_CHECKING:
    from fleetctl.domain.scan import Scan
    from fleetctl.usecases.inventory_diff import InventoryDiff
    from fleetctl.usecases.inventory_found import Found

WHAT = {
    "machines": ("machine", ("sku", "gpus", "region", "state", "owner", "workload")),
    "engines": ("engine", ("software", "engine_version", "model", "requests_per_s", "p95_ms", "adapters")),
    "groups": ("group", ("form", "sku", "count", "minimum", "maximum", "region", "owner")),
    "deployments": ("deployment", ("count", "gpus", "vendor", "autoscaler", "gitops", "owner")),
    "services": ("service", ("form", "software", "model", "minimum", "maximum", "gitops")),
    "quotas": ("quota", ("family", "used", "limit", "region")),
    "sizes": ("size", ("gpus", "restricted", "region")),
    "reservations": ("reservation", ("sku", "count", "free", "until", "region")),
}
"""What `list --what` shows: the kind, and the facts that become columns."""
MOST_GAPS = 20


def pools_table(found: Found) -> Table:
    """Return the machines by size and region, the most expensive first."""
    columns = (
        Column(title="REGION"),
        Column(title="SKU", shrink=2, middle=True),
        Column(title="POOL", shrink=1, middle=True),
        Column(title="VMS", right=True),
        Column(title="RUN", right=True, wide=True),
        Column(title="GPUS", right=True),
        Column(title="USD/H", right=True),
        Column(title="OWNERS", shrink=3),
        Column(title="CLOUD", wide=True),
        Column(title="VENDOR", wide=True),
        Column(title="GPU", wide=True),
        Column(title="PRIORITY", wide=True),
    )
    rows = tuple(
        (
            p.region or "-",
            p.sku,
            p.pool or "-",
            str(p.vms),
            str(p.running),
            str(p.gpus),
            "-" if p.usd_per_hour is None else f"{p.usd_per_hour:.2f}",
            ", ".join(p.owners[:3]) + (f" and {len(p.owners) - 3} more" if len(p.owners) > 3 else "") or "-",
            p.cloud or "-",
            p.vendor or "-",
            p.gpu or "-",
            p.priority,
        )
        for p in found.pools
    )
    total = sum(p.vms for p in found.pools)
    foot = (
        "",
        f"{total} machines, {sum(p.gpus for p in found.pools)} GPUs; POOL -: not in the fleet file; USD at list prices, of those that run",
    )
    return Table(columns=columns, rows=rows, foot=foot, empty="No machine was found. Run: fleetctl inventory scan")


def things_table(found: Found, what: str) -> Table:
    """Return the things of one kind, by name."""
    kind, names = WHAT[what]
    things = found.of_kind(kind)
    columns = (Column(title=kind.upper(), shrink=1, middle=True), *(_column(n) for n in names), Column(title="SOURCE", wide=True))
    rows = tuple((_named(t), *(t.text(n) or "-" for n in names), t.source) for t in things)
    foot = ("", f"{len(things)} {what}")
    return Table(columns=columns, rows=rows, foot=foot, empty=f"No {what} were found. Run: fleetctl inventory scan")


def thing_text(thing: Thing) -> str:
    """Return everything about one thing: each fact with its source, then what contradicts."""
    width = max((len(clean(n)) for n in thing.values), default=0)
    lines = [f"{thing.kind} {clean(thing.id)}", *(f"also known as {clean(name)}" for name in thing.also)]
    lines.append(
        f"seen at {thing.seen_at:%Y-%m-%d %H:%M} UTC by {clean(thing.source)}" + (", and where it says so" if thing.origin else "")
    )
    for name, value in sorted(thing.values.items()):
        source = f"  ({clean(thing.origin[name])})" if name in thing.origin else ""
        lines.append(f"  {clean(name):<{width}}  {clean(_value(value))}{source}")
    return "\n".join([*lines, *conflict_lines(thing.conflicts)])


def conflict_lines(conflicts: Iterable[Conflict]) -> list[str]:
    """Return a line per fact that sources contradict each other about."""
    out = []
    for c in conflicts:
        others = "; ".join(f"{clean(_value(o.value))} says {clean(o.source)}" for o in c.others)
        out.append(f"Conflict: {clean(c.field)}: {clean(_value(c.chosen.value))} ({clean(c.chosen.source)}), but {others}")
    return out


def scan_table(scan: Scan, doubts: Sequence[Gap]) -> Table:
    """Return one line per part: how many facts, how long it took, and whether it was asked at all; then what is not known."""
    columns = (
        Column(title="SOURCE"),
        Column(title="PART", shrink=1, middle=True),
        Column(title="FACTS", right=True),
        Column(title="SECONDS", right=True),
        Column(title="STATE"),
    )
    rows = tuple(
        (p.source, p.part or "-", str(len(p.facts)), f"{p.seconds:.1f}", _state(p.reused, bool(p.gaps), p.kept_from is not None))
        for p in scan.parts
    )
    gaps = (*scan.gaps(), *doubts)
    total = sum(len(p.facts) for p in scan.parts)
    foot = ["", f"scan {scan.number}: {total} facts of {len(scan.parts)} parts, {len(gaps)} gaps", *gap_lines(gaps)]
    return Table(columns=columns, rows=rows, foot=tuple(foot), empty="There is no source. Add sources to the fleet file, or --from azure.")


def gap_lines(gaps: Sequence[Gap], most: int = MOST_GAPS) -> list[str]:
    """Return a line per gap, the first `most` of them."""
    lines = [f"Not known: {clean(g.scope)}: {clean(g.reason)} ({clean(g.source)})" for g in gaps[:most]]
    return lines + ([f"and {len(gaps) - most} gaps more: -o json shows all"] if len(gaps) > most else [])


def diff_table(diff: InventoryDiff) -> Table:
    """Return one line per change."""
    sign = {"added": "+", "removed": "-", "changed": "~"}
    rows = tuple((f"{sign[c.what]} {c.kind}", c.id, "; ".join(_change(*f) for f in c.fields)) for c in diff.changes)
    foot = [
        "",
        f"scan {diff.before} ({diff.before_at:%Y-%m-%d %H:%M} UTC) to scan {diff.after} ({diff.after_at:%Y-%m-%d %H:%M} UTC): "
        f"{len(diff.changes)} changes",
    ]
    if diff.unsure:
        foot.append(f"{diff.unsure} things could not be looked at again and may stand or not")
    columns = (Column(title="CHANGE"), Column(title="ID", shrink=1, middle=True), Column(title="FACTS", shrink=2))
    return Table(columns=columns, rows=rows, foot=tuple(foot), empty="Nothing changed.")


def _change(name: str, old: object, new: object) -> str:
    return f"{name}: {shorten(_value(old), 40)} -> {shorten(_value(new), 40)}"


def _value(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _state(reused: bool, has_gaps: bool, kept: bool) -> str:
    return "not asked" if reused else "failed, kept" if kept else "gaps" if has_gaps else "asked"


def _named(thing: Thing) -> str:
    name = thing.text("name").split(" ")[0]
    return name or thing.id


def _column(name: str) -> Column:
    numbers = {"gpus", "count", "minimum", "maximum", "used", "limit", "requests_per_s", "p95_ms", "free"}
    return Column(
        title=name.upper().replace("_PER_S", "/S").replace("_", " "), right=name in numbers, shrink=0 if name in numbers | {"region"} else 2
    )
