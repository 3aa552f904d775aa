"""Plan, pure layer: what one plan does otherwise than another. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.plan import Outcome, Plan
from fleetctl.domain.units import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """One cell that two plans treat differently.

    Args:
        before, after: such as "move to mi300x-eastus2, 4 replicas"; "" where that plan does not know the cell.
        why: the newer plan's reason; cost_before, cost_after: USD per hour by its share, None where unknown.
    """

    cell: CellId
    before: str
    after: str
    why: str
    cost_before: Money | None
    cost_after: Money | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two plans of one fleet.

    Args:
        same_fleet: no line of the fleet file has changed in between; inputs: what else has: catalogue, price book, lineage.
        cells: those treated differently; waves: cells that move in another wave, other cells alike.
    """

    old: PlanId
    new: PlanId
    old_serial: int
    new_serial: int
    same_fleet: bool
    inputs: tuple[tuple[str, str, str], ...]
    then_before: Money
    then_after: Money
    cells: tuple[CellChange, ...]
    waves: tuple[CellId, ...]


def difference(old: Plan, new: Plan) -> Difference:
    """Return what `new` does otherwise than `old`, in the order of the newer plan's cells, those that are gone last."""
    before, after = {o.cell: o for o in old.outcomes}, {o.cell: o for o in new.outcomes}
    cells = tuple(
        CellChange(
            cell=name,
            before=_said(before.get(name)),
            after=_said(after.get(name)),
            why=after[name].reason.text if name in after else "It is not in the fleet any more.",
            cost_before=_cost(before.get(name)),
            cost_after=_cost(after.get(name)),
        )
        for name in (*after, *(n for n in before if n not in after))
        if _said(before.get(name)) != _said(after.get(name))
    )
    wave_before = {c: w.index for w in old.waves for c in w.cells}
    wave_after = {c: w.index for w in new.waves for c in w.cells}
    pairs = (
        ("lineage", old.lineage, new.lineage),
        ("catalogue", old.catalog_id, new.catalog_id),
        ("price book", old.price_book_id, new.price_book_id),
    )
    changed = {c.cell for c in cells}
    return Difference(
        old=old.id,
        new=new.id,
        old_serial=old.serial,
        new_serial=new.serial,
        same_fleet=old.fleet == new.fleet,
        inputs=tuple(p for p in pairs if p[1] != p[2]),
        then_before=old.cost_then,
        then_after=new.cost_then,
        cells=cells,
        waves=tuple(c for c, w in wave_after.items() if c in wave_before and wave_before[c] != w and c not in changed),
    )


def _said(o: Outcome | None) -> str:
    if o is None:
        return ""
    if o.arrived:
        return f"arrived at {o.target}"
    if o.kind == "move":
        return f"move to {o.target}, {o.target_replicas or o.replicas} replicas"
    return f"{'stay' if o.kind == 'stay' else 'blocked'}, {o.reason.code}"


def _cost(o: Outcome | None) -> Money | None:
    if o is None:
        return None
    return o.cost_then if o.kind == "move" else o.cost_now
