"""Provision and capacity, views layer: plans of pools, what became of them, and where machines may be had. Never I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from fleetctl.domain.people import Diagnostic
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import ProvisionPlan
from fleetctl.usecases.capacity import ProvisionOutcome
from fleetctl.usecases.oracle import PoolCapacity
from fleetctl.views.output import Column, Table, clean

_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_WORDS = {"create": "to make", "update": "to change", "delete": "to remove"}
_MACHINES = ("azurerm_linux_virtual_machine", "aws_instance", "aws_autoscaling_group", "terraform_data")
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


def plan_lines(spec: PoolSpec, shown: ProvisionPlan, usd_per_hour: Decimal | None) -> tuple[str, ...]:
    """Return a Terraform plan as a person reads it: where, machines first, the rest summed up, the cost."""
    where = f"{spec.region}, zone {spec.zone}" if spec.zone else spec.region
    terms = "spot" if spec.priority == "spot" else "on demand"
    lines = [f"pool/{spec.pool}: {spec.count} x {spec.sku} in {where}, {terms} (stack {shown.stack}, {shown.tool})"]
    lines += [f"  {line}" for line in _changes(shown)]
    if not shown.is_empty:
        lines.append(f"  cost: {_cost(usd_per_hour)}")
    return tuple(clean(line) for line in lines)


def _changes(shown: ProvisionPlan) -> Iterator[str]:
    rest: Counter[str] = Counter()
    for c in shown.changes:
        signs = "/".join(_SIGNS[a] for a in c.actions if a in _SIGNS)
        if not signs:
            continue
        if c.type in _MACHINES or "delete" in c.actions:
            yield f"{signs} {c.address}"
        else:
            rest["/".join(_WORDS[a] for a in c.actions if a in _WORDS)] += 1
    for words, number in sorted(rest.items()):
        yield f"and {number} smaller {'resource' if number == 1 else 'resources'} {words} (network cards, networks, identities)"


def _cost(usd_per_hour: Decimal | None) -> str:
    if usd_per_hour is None:
        return "not known: no list price for this size here"
    sign = "+" if usd_per_hour >= 0 else "-"
    month = abs(usd_per_hour) * 730
    return f"{sign}{abs(usd_per_hour):,.2f} USD/h by list price ({sign}{month:,.0f} USD in a month of 730 h)"


def outcome_lines(o: ProvisionOutcome, *, with_plan: bool) -> tuple[str, ...]:
    """Return what became of a pool.

    Args:
        with_plan: the plan was not printed before.
    """
    lines = list(plan_lines(o.spec, o.shown, o.usd_per_hour)) if with_plan else []
    lines += [f"  {f.severity}: {f.path}: {f.text}" for f in o.findings]
    lines += [f"  orphan: {x.kind} {x.name} ({x.state}), in no state: {x.id}" for x in o.orphans]
    lines += [f"  refused: {a.place.text}: {a.code}: {a.text}" for a in o.attempts]
    if o.done is not None:
        made = f"{o.done.added} added, {o.done.changed} changed, {o.done.destroyed} destroyed"
        lines.append(
            f"  applied in {o.done.seconds:.1f} s: {made}" + (f", at {o.place.text}" if o.place is not None and o.attempts else "")
        )
    elif o.shown.is_empty:
        lines.append(f"  pool/{o.spec.pool}: no changes: it is as planned")
    if o.hosts:
        lines.append(f"  hosts: {', '.join(h.id for h in o.hosts)}")
    return tuple(clean(line) for line in lines)


def drift_lines(found: tuple[Diagnostic, ...]) -> tuple[str, ...]:
    """Return drift, one line each."""
    return tuple(clean(f"  drift: {d.text}") for d in found)


def capacity_table(rows: tuple[PoolCapacity, ...]) -> Table:
    """Return where machines may be had, a line per place; "unknown" is an answer."""
    cells = tuple(
        (
            str(row.pool.id),
            v.sku,
            v.region,
            v.zone or "-",
            "spot" if v.priority == "spot" else "on demand",
            str(row.count),
            v.kind,
            "; ".join(v.reasons) or v.reason,
        )
        for row in rows
        for v in row.verdicts
    )
    foot = (
        "",
        "yes: reserved places are free. no: trying is known to be vain. unknown: only a try can tell (no cloud says what it has left).",
    )
    return Table(columns=CAPACITY_COLUMNS, rows=cells, foot=foot, empty="No pool of this fleet is made by fleetctl.")
