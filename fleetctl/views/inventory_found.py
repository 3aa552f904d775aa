"""Inventory, views layer: pools, machines, engines, quotas and changes as tables; everything about one thing as text. Never I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetctl.domain.merge import Conflict, Thing
from fleetctl.domain.people import Gap
from fleetctl.views.columns import counted
from fleetctl.views.output import Column, Table, clean, shorten

if TYPE_CHECKING:
    from fleetctl.domain.scan import PartScan, Scan
    from fleetctl.usecases.inventory_diff import InventoryDiff
    from fleetctl.usecases.inventory_found import Found

WHAT = {
    "machines": ("machine", ("sku", "gpus", "region", "state", "owner", "workload")),
    "engines": ("engine", ("software", "engine_version", "model", "requests_per_s", "p95_ms", "adapters")),
    "groups": ("group", ("form", "sku", "count", "minimum", "maximum", "region", "owner")),
    "deployments": ("deployment", ("count", "gpus", "vendor", "autoscaler", "gitops", "owner")),
    "services": ("service", ("form", "software", "model", "minimum", "maximum", "gitops")),
    "quotas": ("quota", ("used", "limit", "region")),
    "sizes": ("size", ("gpus", "restricted", "region")),
    "nodes": ("node", ("pool", "release", "driver", "rocm", "layer", "commit")),
    "reservations": ("reservation", ("sku", "count", "free", "until", "region")),
}
"""What `list --what` shows: the kind, and the facts that become columns."""
MOST_GAPS, MOST_CHANGES = 20, 100


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
        Column(title="OWNERS", shrink=3, least=9),
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
            f"{p.usd_per_hour:.2f}" if p.usd_per_hour is not None else "-" if p.priority == "regular" else p.priority,
            " ".join([*p.owners[:1], f"+{len(p.owners) - 1}"] if len(p.owners) > 1 else p.owners) or "-",
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
        f"{counted(total, 'machine')}, {counted(sum(p.gpus for p in found.pools), 'GPU')}",
        "POOL -: not in the fleet file. USD/H: list prices of those that run; none is known for spot.",
    )
    return Table(columns=columns, rows=rows, foot=foot, empty="No machine was found. Run: fleetctl inventory scan")


def things_table(found: Found, what: str) -> Table:
    """Return the things of one kind, by name."""
    kind, names = WHAT[what]
    things = sorted(found.of_kind(kind), key=lambda t: -(t.number("requests_per_s") or 0.0))
    columns = (Column(title=kind.upper(), shrink=1, middle=True), *(_column(n) for n in names), Column(title="SOURCE", wide=True))
    rows = tuple((_named(t), *(_value(t.values.get(n)) for n in names), t.source) for t in things)
    foot = ("", counted(len(things), kind))
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
        Column(title="SOURCE", shrink=1, middle=True),
        Column(title="PART", shrink=2, middle=True, least=16),
        Column(title="FACTS", right=True),
        Column(title="SECONDS", right=True),
        Column(title="STATE"),
    )
    rows = tuple((p.source, p.part or "-", str(len(p.facts)), f"{p.seconds:.1f}", _state(p)) for p in scan.parts)
    gaps = (*scan.gaps(), *doubts)
    total = sum(len(p.facts) for p in scan.parts)
    said = f"{counted(total, 'fact')} of {counted(len(scan.parts), 'part')}, {counted(len(gaps), 'gap')}"
    foot = ["", f"scan {scan.number}: {said}", *gap_lines(gaps)]
    if not scan.number:
        foot[1:2] = ["No source was asked. Add sources to the fleet file, or: fleetctl inventory scan --from aws"]
    return Table(columns=columns, rows=rows, foot=tuple(foot), empty="There is no source. Add sources to the fleet file, or --from azure.")


def gap_lines(gaps: Sequence[Gap], most: int = MOST_GAPS) -> list[str]:
    """Return a line per gap, the first `most` of them."""
    lines = [f"Not known: {clean(g.scope)}: {clean(g.reason)} ({clean(g.source)}){_mend(g)}" for g in gaps[:most]]
    return lines + ([f"and {len(gaps) - most} gaps more: -o json shows all"] if len(gaps) > most else [])


def _mend(gap: Gap) -> str:
    return f". {clean(gap.mend)}" if gap.mend else ""


def diff_table(diff: InventoryDiff) -> Table:
    """Return one line per change."""
    sign = {"added": "+", "removed": "-", "changed": "~"}
    shown = diff.changes[:MOST_CHANGES]
    rows = tuple((f"{sign[c.what]} {c.kind}", _tail(c.id), "; ".join(_change(*f) for f in c.fields), c.id) for c in shown)
    foot = [""]
    if len(diff.changes) > len(shown):
        foot.append(f"... and {counted(len(diff.changes) - len(shown), 'more change')}: -o json shows all")
    counts = Counter((sign[c.what], c.kind) for c in diff.changes)
    foot += [
        f"scan {diff.before} ({diff.before_at:%Y-%m-%d %H:%M} UTC) to scan {diff.after} ({diff.after_at:%Y-%m-%d %H:%M} UTC): "
        f"{counted(len(diff.changes), 'change')}" + "".join(f", {mark}{n} {kind}" for (mark, kind), n in sorted(counts.items()))
    ]
    if diff.unsure:
        foot.append(f"{counted(diff.unsure, 'thing')} could not be looked at again and may stand or not")
    columns = (
        Column(title="CHANGE"),
        Column(title="NAME", shrink=1, middle=True),
        Column(title="FACTS", shrink=2, wraps=True, least=24),
        Column(title="ID", wide=True),
    )
    return Table(columns=columns, rows=rows, foot=tuple(foot), empty="Nothing changed.")


def _tail(id_: str) -> str:
    """Return the end of a cloud's long id, which is its name there."""
    parts = id_.rsplit("/", 3)
    if len(parts) == 4 and parts[-2] == "virtualmachines" and parts[-1].isdigit():
        return f"{parts[1]}/{parts[-1]}"  # a member of a scale set
    return parts[-1] or id_


def _change(name: str, old: object, new: object) -> str:
    return f"{name}: {shorten(_value(old), 40)} -> {shorten(_value(new), 40)}"


def _value(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return "-" if value is None or value == "" else str(value)


def _state(part: PartScan) -> str:
    if part.reused:
        return "not asked"
    if part.kept_from is not None:
        return "failed, kept"
    return "asked" if not part.gaps else "gaps" if part.facts else "failed"


def _named(thing: Thing) -> str:
    if thing.kind in ("quota", "size"):
        return thing.text("family") or _tail(thing.id)
    return thing.text("name").split(" ")[0] or thing.id


def _column(name: str) -> Column:
    numbers = {"gpus", "count", "minimum", "maximum", "used", "limit", "requests_per_s", "p95_ms", "free"}
    return Column(
        title={"requests_per_s": "REQ/S", "engine_version": "VERSION"}.get(name, name.upper().replace("_", " ")),
        right=name in numbers,
        shrink=0 if name in numbers | {"region"} else 2,
        middle=name == "sku",
    )
