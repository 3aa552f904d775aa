"""Plan, pure layer: the fleet's bill by list prices, by the fleet file's own, and with what is prepaid. Never guesses, never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.calendar import CashLine
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import Commitment, Pool
from fleetctl.domain.units import Instant, Money
from fleetctl.planning.cost import CENT, PoolCost


def cash_lines(
    fleet_pools: Sequence[Pool], pools: Sequence[PoolCost], commitments: Iterable[Commitment], catalog: Catalog, now: Instant
) -> tuple[CashLine, ...]:
    """Return the bill by list prices, by contract, and after commitments.

    After commitments a prepaid VM costs its own hourly rate until its commitment ends, used or not; every other VM its contract price.
    """
    used = {p.pool: p for p in pools if p.vms_now or p.vms_then}
    listed = {p.id: row.usd_per_hour for p in fleet_pools if p.id in used and (row := catalog.price(p.sku, p.region)) is not None}
    own = {p.pool: p.price.amount for p in used.values() if p.price is not None}
    paid: dict[PoolId, list[tuple[int, Decimal]]] = {}
    today = now.date().isoformat()
    for c in commitments:
        if c.until >= today and c.hourly.currency == "USD":
            paid.setdefault(c.pool, []).append((c.count, c.hourly.amount))
    lines = [_line("list", used, listed, {}), _line("contract", used, own, {})]
    if paid:
        lines.append(_line("commitments", used, own, paid))
    return tuple(lines)


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
