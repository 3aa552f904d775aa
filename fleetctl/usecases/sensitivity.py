"""Plan, use-case layer: plan again with slower and faster AMD accelerators and by each price book. Never imports an adapter.

Source of +-10 %: planning.md 6 (the spread between submitters of one system is 2 to 12 %, the drift in a year 10 to 27 %).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from fleetctl.catalog.loader import load_catalog
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.plan import Plan
from fleetctl.domain.sensitivity import Case, Flip, Sensitivity, Told
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.usecases.plan import PlanPorts, work

FACTORS = (0.9, 1.1)
AS_PLANNED = "as planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """One case still to be planned; own: the fleet file's own prices count before the book's."""

    name: str
    factor: float
    prices: str
    catalog: Catalog
    own: bool
    book: str = ""


def sensitivity(
    fleet: Fleet,
    made: Plan,
    ports: PlanPorts,
    *,
    options: PlanOptions = DEFAULT,
    books: Mapping[str, Catalog] | None = None,
    save: bool = True,
) -> Sensitivity:
    """Return what each case would make of the fleet that `made` was planned for, and save it beside the plan.

    Args:
        options: those that `made` was planned with; books: price books by name; None: the one that counts here alone.
    """
    base = _case(AS_PLANNED, 1.0, "the fleet file's own first", made, made)
    cases, told = [base], [_told(made)]
    catalog = ports.catalog if ports.catalog is not None else load_catalog()
    for case in _tries(fleet, catalog, books or {"list": catalog}):
        priced = fleet if case.own else _by_book(fleet, case.catalog)
        plan = work(priced, ports, replace(options, amd_factor=options.amd_factor * case.factor), case.catalog).plan
        cases.append(replace(_case(case.name, case.factor, case.prices, plan, made), by_book=_covered(fleet, case), pools=len(fleet.pools)))
        told.append(_told(plan))
    flips = [
        Flip(cell=o.cell, workload=o.workload, cost_now=o.cost_now, told=tuple(t.get(o.cell, "infeasible") for t in told))
        for o in made.outcomes
        if any(t.get(o.cell) != o.kind for t in told)
    ]
    flips.sort(key=lambda f: (-(f.cost_now.amount if f.cost_now is not None else Decimal(0)), f.cell))
    found = Sensitivity(plan=made.id, made_at=ports.clock.now(), cases=tuple(cases), flips=tuple(flips))
    if save:
        ports.records.put(made.id, found)
    return found


def _tries(fleet: Fleet, base: Catalog, books: Mapping[str, Catalog]) -> tuple[_Try, ...]:
    speeds = [
        _Try(name=f"AMD {factor - 1:+.0%}", factor=factor, prices="the fleet file's own first", catalog=base, own=True)
        for factor in FACTORS
    ]
    own = any(p.price_usd_per_hour is not None for p in fleet.pools)
    priced = [
        _Try(name=f"prices: {name}", factor=1.0, prices=f"price book {name}", catalog=catalog, own=False, book=name)
        for name, catalog in sorted(books.items())
        if own or catalog.price_book_id != base.price_book_id
    ]
    return (*speeds, *priced)


def _covered(fleet: Fleet, case: _Try) -> int | None:
    """Return how many pools the book of a case prices itself; None for a case of no book."""
    if not case.book:
        return None
    rows = [case.catalog.price(p.sku, p.region) for p in fleet.pools]
    return sum(row is not None and row.kind == case.book for row in rows)


def _by_book(fleet: Fleet, catalog: Catalog) -> Fleet:
    """Return the fleet without its own prices wherever the book has one."""
    pools = tuple(replace(p, price_usd_per_hour=None) if catalog.price(p.sku, p.region) is not None else p for p in fleet.pools)
    return replace(fleet, pools=pools)


def _told(plan: Plan) -> dict[str, Told]:
    return {o.cell: o.kind for o in plan.outcomes}


def _case(name: str, factor: float, prices: str, plan: Plan, base: Plan) -> Case:
    before, after = _told(base), _told(plan)
    kinds = [o.kind for o in plan.outcomes]
    return Case(
        name=name,
        amd_factor=factor,
        prices=prices,
        price_book_id=plan.price_book_id,
        cost_now=plan.cost_now,
        cost_then=plan.cost_then,
        moves=kinds.count("move"),
        stays=kinds.count("stay"),
        blocked=kinds.count("infeasible"),
        flips=sum(before[c] != kind for c, kind in after.items()),
    )
