"""Plan, pure layer: the fleet's bill by list prices, by the fleet file's own, and with what is prepaid. Never guesses, never I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.calendar import CashLine
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import Commitment
from fleetctl.domain.units import Instant, Money
from fleetctl.planning.candidates import Site
from fleetctl.planning.commitments import scoped, units_of
from fleetctl.planning.cost import CENT, PoolCost
from fleetctl.planning.cover import covered


def cash_lines(fleet: Fleet, sites: Sequence[Site], pools: Sequence[PoolCost], catalog: Catalog, now: Instant) -> tuple[CashLine, ...]:
    """Return the bill by list prices, by contract, and after commitments.

    After commitments a prepaid VM costs its own hourly rate until its commitment ends, used or not; every other VM its contract price.

    Args:
        sites, pools: of the fleet's pools, in its order.
    """
    used = {p.pool: p for p in pools if p.vms_now or p.vms_then}
    listed = {p.id: row.usd_per_hour for p in fleet.pools if p.id in used and (row := catalog.price(p.sku, p.region)) is not None}
    own = {p.pool: p.price.amount for p in used.values() if p.price is not None}
    paid: dict[PoolId, list[tuple[int, Decimal]]] = {}
    today = now.date().isoformat()
    for c in fleet.commitments:
        if c.until >= today and c.scope is None and c.hourly.currency == "USD":
            paid.setdefault(c.pool, []).append((c.count, c.hourly.amount))
    lines = [_line("list", used, listed, {}), _line("contract", used, own, {})]
    by_scope = scoped(fleet, now)
    if paid or by_scope:
        line = _line("commitments", used, own, paid)
        lines.append(_with_scopes(line, by_scope, sites, pools, catalog, {p: sum(n for n, _ in held) for p, held in paid.items()}))
    return tuple(lines)


def _with_scopes(
    line: CashLine,
    by_scope: Sequence[Commitment],
    sites: Sequence[Site],
    pools: Sequence[PoolCost],
    catalog: Catalog,
    prepaid: Mapping[PoolId, int],
) -> CashLine:
    """Return the bill with what commitments by scope cost, less the VMs that they pay for."""
    if line.now is None or line.then is None or not by_scope:
        return line
    units, funds = units_of(by_scope, sites, catalog)
    price = [float(s.price.amount) if s.price is not None else 0.0 for s in sites]
    sunk = sum((c.hourly.amount * (1 if c.discount is not None else c.count) for c in by_scope), Decimal(0))

    def less(vms: Sequence[int]) -> Decimal:
        held = covered(units, funds, price, [n - prepaid.get(p.pool, 0) for n, p in zip(vms, pools, strict=True)])
        return Decimal(repr(round(sum(n * usd for n, usd in zip(held, price, strict=True)), 4)))

    now, then = less([p.vms_now for p in pools]), less([p.vms_then for p in pools])
    return CashLine(name=line.name, now=_usd(line.now.amount + sunk - now), then=_usd(line.then.amount + sunk - then))


def _line(
    name: str,
    pools: Mapping[PoolId, PoolCost],
    price: Mapping[PoolId, Decimal],
    paid: Mapping[PoolId, list[tuple[int, Decimal]]],
) -> CashLine:
    if any(p not in price for p in pools):
        return CashLine(name=name, now=None, then=None)
    now = sum((_bill(p.vms_now, price[p.pool], paid.get(p.pool, [])) for p in pools.values()), Decimal(0))
    then = sum((_bill(p.vms_then, price[p.pool], paid.get(p.pool, [])) for p in pools.values()), Decimal(0))
    return CashLine(name=name, now=_usd(now), then=_usd(then))


def _bill(vms: int, price: Decimal, paid: Sequence[tuple[int, Decimal]]) -> Decimal:
    prepaid = sum(n for n, _ in paid)
    return sum((n * hourly for n, hourly in paid), Decimal(0)) + max(0, vms - prepaid) * price


def _usd(amount: Decimal) -> Money:
    return Money(amount=amount.quantize(CENT, ROUND_HALF_UP))
